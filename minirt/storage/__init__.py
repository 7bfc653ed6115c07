"""Checkpoints on storage: files and object stores that fsspec reaches, and what minirt keeps there."""
