"""The quick `dataclass` makes what the one of the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from minirt.dataclass import dataclass

Decorator = Callable[..., Any]


def family(decorator: Decorator, **options: bool) -> dict[str, Any]:
    """Classes of all kinds; the same code for each decorator."""

    @decorator(**options)
    class Plain:
        """A text."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        kind: ClassVar = "plain"

        def double(self) -> int:
            return 2 * self.a

    @decorator(**options)
    class Fields:
        a: int = field(kw_only=True)
        b: int = field(default=2, repr=False)
        c: int = field(default=3, compare=False)
        d: int = field(default=4, init=False)
        e: list[int] = field(default_factory=list, init=False)
        f: tuple[int, ...] = field(default=(), hash=False)

    @decorator(**options)
    class Empty:
        pass

    @decorator(**options)
    class Single:
        value: Any

    @decorator(**options)
    class Checked:
        value: int

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("below 0")

    @decorator(**options)
    class Own:
        value: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    @decorator(**options)
    class Below(Plain):
        z: int = 26

    made = locals() | {}
    return {name: made[name] for name in made if isinstance(made[name], type)}


OPTIONS: dict[str, dict[str, bool]] = {
    "frozen, with slots": {"frozen": True, "slots": True},
    "frozen": {"frozen": True},
    "with slots": {"slots": True},
    "neither": {},
}

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (1,), {}),
    ("Plain", (1, "x", [3]), {}),
    ("Plain", (), {"c": [1], "a": 5}),
    ("Plain", (), {}),
    ("Plain", (1, 2, 3, 4), {}),
    ("Fields", (), {"a": 1}),
    ("Fields", (7, 8), {"a": 1, "f": (2,)}),
    ("Fields", (1, 2, 3, 4), {"a": 1}),
    ("Empty", (), {}),
    ("Single", (float("nan"),), {}),
    ("Single", ((1, 2),), {}),
    ("Single", ([],), {}),
    ("Checked", (1,), {}),
    ("Checked", (-1,), {}),
    ("Own", (1,), {}),
    ("Below", (1,), {"z": 3}),
]


def told(action: Callable[[], Any]) -> Any:
    """What comes of it, or the kind of the error and its message."""
    try:
        return action()
    except Exception as error:
        return type(error), str(error)


def is_refused(one: Any, name: str) -> bool:
    """Whether an attribute can be neither set nor deleted; Python 3.11 says why not wrongly."""
    try:
        setattr(one, name, 1)
        delattr(one, name)
    except (AttributeError, TypeError):
        return True
    return False


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_objects_are_those_of_the_standard_library(
    call: tuple[str, tuple[Any, ...], dict[str, Any]], options: dict[str, bool]
) -> None:
    name, arguments, named = call
    seen = []
    for decorator in (dataclass, dataclasses.dataclass):
        cls = family(decorator, **options)[name]
        one = told(lambda cls=cls: cls(*arguments, **named))  # type: ignore[misc]
        if not isinstance(one, cls):
            seen.append(one)
            continue
        other = cls(*arguments, **named)
        seen.append(
            {
                "repr": repr(one).rpartition(".")[2],
                "equal": (one == one, one == other, one == copy.deepcopy(one), one != "x"),
                "hash": told(lambda one=one: hash(one) == hash(copy.copy(one))),  # type: ignore[misc]
                "dict": told(lambda one=one: dataclasses.asdict(one)).__str__(),  # type: ignore[misc]
                "set": is_refused(one, "a"),
                "new": is_refused(one, "unknown"),
                "delete": is_refused(one, "value"),
                "has dict": hasattr(one, "__dict__"),
                "match": cls.__match_args__,
                "fields": [(f.name, f.init, f.repr, f.kw_only) for f in dataclasses.fields(one)],
                "frozen": cls.__dataclass_params__.frozen,
                "parameters": [*inspect.signature(cls).parameters],
                "ours": dataclasses.is_dataclass(one),
            }
        )
    assert seen[0] == seen[1]


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(slots=True)
class Loose:
    x: int


def test_pickles_copies_and_replacements() -> None:
    point = Point(1, 2)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(point, protocol)) == point
        assert pickle.loads(pickle.dumps(Loose(1), protocol)) == Loose(1)
    assert copy.copy(point) == copy.deepcopy(point) == point
    assert dataclasses.replace(point, y=5) == Point(1, 5)
    assert {point: "here"}[Point(1, 2)] == "here"
    assert Point(1) != Loose(1)


def test_it_is_matched_by_place() -> None:
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


def test_what_is_frozen_stays_so() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del Point(1).x
    with pytest.raises(TypeError, match="unhashable"):
        hash(Loose(1))


def test_classes_below_it() -> None:
    class Named(Point):
        def __init__(self, name: str) -> None:
            super().__init__(1, 2)
            self.name = name

    @dataclasses.dataclass(frozen=True)
    class Deeper(Point):
        z: int = 9

    assert Named("a").name == "a"
    assert Deeper(1, 2) == Deeper(1, 2, 9) != Point(1, 2)
    assert repr(Deeper(1)).endswith("Deeper(x=1, y=0, z=9)")
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Wrong", (Point,), {}))


def test_a_value_that_holds_itself() -> None:
    loose = Loose(1)
    loose.x = loose  # type: ignore[assignment]
    assert repr(loose) == "Loose(x=...)"


def test_other_options_are_those_of_the_standard_library() -> None:
    @dataclass(frozen=True, order=True)
    class Ordered:
        x: int

    assert Ordered(1) < Ordered(2)
