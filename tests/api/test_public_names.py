"""What `import minirt` offers."""

from __future__ import annotations

import inspect

import minirt
from minirt import errors


def test_every_error_can_be_caught_by_its_public_name():
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert {kind.__name__ for kind in kinds if issubclass(kind, minirt.MinirtError)} <= set(
        minirt.__all__
    )


def test_every_public_name_is_there():
    assert [name for name in minirt.__all__ if not hasattr(minirt, name)] == []
