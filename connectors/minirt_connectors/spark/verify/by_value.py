"""Sends modules along to Spark's executors, which may lack minirt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def by_value(*modules: ModuleType) -> Iterator[None]:
    """Have functions that are given to Spark in this block bring what they need of the modules."""
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
