"""What the modules of minirt name: by that a test tells which files an addition touches."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import minirt as rt

ROOT = Path(rt.__file__).parent


@cache
def trees() -> dict[str, ast.Module]:
    """All modules, by their path below `minirt/`."""
    paths = sorted(ROOT.rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def files_that(hold: Callable[[ast.Module], bool]) -> set[str]:
    return {path for path, tree in trees().items() if hold(tree)}


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All that a module consists of. To walk through it is dear, and many tests do."""
    return (*ast.walk(tree),)


@cache
def attributes_in(tree: ast.AST) -> frozenset[str]:
    """All that a module looks up as an attribute of something."""
    return frozenset(node.attr for node in nodes_of(tree) if isinstance(node, ast.Attribute))


@cache
def names_in(tree: ast.AST) -> frozenset[str]:
    """The classes that a module makes, and the names that it uses; an import alone is no use."""
    return frozenset(_names(tree))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in nodes_of(tree):
        match node:
            case ast.ClassDef(name=name) | ast.Name(id=name):
                yield name


def compares_with(tree: ast.AST, value: str) -> bool:
    """Whether a module compares something with a text."""
    return value in _compared(tree)


@cache
def _compared(tree: ast.AST) -> frozenset[object]:
    """The constants that a module compares something with."""
    return frozenset(
        part.value
        for node in nodes_of(tree)
        if isinstance(node, ast.Compare | ast.MatchValue)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant)
    )
