"""Keyword arguments that nothing takes are refused with the nearest name that there is."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def check_keywords(
    given: Iterable[str],
    known: Collection[str],
    home_of: Callable[[str], str | None] = lambda keyword: None,
    owner: str = "",
) -> None:
    """Raise TypeError, as Python does, for a keyword that is not known.

    `home_of` may say where a keyword belongs instead; `owner` names what was called.
    """
    for keyword in given:
        if keyword not in known:
            near = difflib.get_close_matches(keyword, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            of = f"{owner}: " if owner else ""
            hint = home_of(keyword) or hint
            raise TypeError(f"{of}unexpected keyword argument {keyword!r}; {hint}")


def refusing_unknown_keywords(cls: C) -> C:
    """Have the constructor of a class refuse an unknown keyword with the nearest one that it takes."""
    construct: Any = cls.__init__  # type: ignore[misc]
    known = [name for name in inspect.signature(construct).parameters if name != "self"]

    @functools.wraps(construct)
    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        if not keywords.keys() <= known_names:
            check_keywords(keywords, known, owner=cls.__name__)
        construct(self, *arguments, **keywords)

    known_names = frozenset(known)
    cls.__init__ = __init__  # type: ignore[misc]
    return cls
