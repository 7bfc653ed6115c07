"""Measurements, one file a question. Each prints JSON rows and checks the result that it timed."""
