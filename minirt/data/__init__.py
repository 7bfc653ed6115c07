"""Batches of records, which travel between operators, their wire form, and the hashing of keys."""
