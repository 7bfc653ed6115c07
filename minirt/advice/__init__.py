"""Advice on a job's checkpoints, from its own figures."""
