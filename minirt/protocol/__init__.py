"""Decides everything and does nothing: events in, commands out; time and ids are arguments."""
