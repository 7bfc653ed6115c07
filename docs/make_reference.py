"""Writes the tables of options into running.md, from the classes in minirt/config.py.

Run it after changing an option:  python docs/make_reference.py
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

from blocks import update

from minirt import config

TARGET = Path(__file__).parent / "running.md"
CLASSES = (config.Checkpointing, config.Options, config.Limits)

SPECIAL = {
    ("Checkpointing", "storage"): "A path or URL that fsspec understands.",
    ("Checkpointing", "mode"): "The name of a checkpoint mode, or a mode object.",
    ("Options", "limits"): "See the table of limits.",
}
"""What the fields without a docstring of their own are for."""


def table(kind: type) -> str:
    """The fields of an option class with defaults and meaning."""
    meanings = docstrings(kind)
    rows = [
        f"| `{field.name}` | {default_of(field)} | "
        f"{meanings.get(field.name) or SPECIAL[kind.__name__, field.name]} |"
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def docstrings(kind: type) -> dict[str, str]:
    """The string below each field, by the name of the field."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return "`{}`" if made == {} else f"`{type(made).__name__}()`"
    if field.default is dataclasses.MISSING:
        return "required"
    if "bytes" in field.name:
        return _size(field.default)
    if field.name.endswith("_s"):
        return f"{field.default:g} s"
    return f"`{field.default!r}`"


def _size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} bytes"


if __name__ == "__main__":
    blocks = {f"options of {kind.__name__}": table(kind) for kind in CLASSES}
    sys.exit(update(TARGET, blocks))
