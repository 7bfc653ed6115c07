"""What a partitioning must say of itself, and which files one touches."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

import minirt.partitionings
from minirt.errors import ConfigurationError
from minirt.graph.partitioning import check_wiring
from minirt.partitionings import (
    PARTITIONINGS,
    Broadcast,
    Custom,
    Forward,
    Hash,
    InFlight,
    KeyPartitioning,
    KeySelector,
    Order,
    Partitioning,
    Rebalance,
    Rescale,
    Wiring,
)
from minirt.testing.conformance.edges import EDGES
from minirt.testing.conformance.graphs import build
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.contracts import PartitioningContract
from tests.naming import compares_with, files_that, nodes_of
from tests.partitionings.outside import ByRange, Everywhere, Mirrored

ROOT = Path(minirt.partitionings.__file__).parents[2]
FACTS: dict[str, Any] = {
    "name": "own",
    "wiring": Wiring.POINTWISE,
    "key": None,
    "in_flight": InFlight.WHOLE_CHANNELS,
    "order": lambda self, senders, receivers: Order.NONE,
    "unchained": "it is new",
    "among": lambda self, site: None,
    "receivers_of": lambda self, sender, senders, receivers: range(receivers),
}
BY_KEY: dict[str, Any] = {
    "name": "own",
    "key": KeySelector(("n",)),
    "pure": True,
    "targets": lambda self, keys, receivers: [0 for _ in keys],
}
NUMBER = KeySelector(("n",))


def test_one_that_says_all_is_accepted() -> None:
    type("Own", (Partitioning,), dict(FACTS))
    type("Own", (KeyPartitioning,), dict(BY_KEY))


@pytest.mark.parametrize(
    ("parent", "facts", "fact"),
    [(Partitioning, FACTS, fact) for fact in FACTS]
    + [(KeyPartitioning, BY_KEY, fact) for fact in BY_KEY],
)
def test_one_that_leaves_out_a_fact_is_refused_at_import(
    parent: type[Partitioning], facts: dict[str, Any], fact: str
) -> None:
    said = {name: value for name, value in facts.items() if name != fact}
    if fact == "wiring":
        del said["receivers_of"]
    with pytest.raises(TypeError, match=f"partitioning Own does not say its {fact}$"):
        type("Own", (parent,), said)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"in_flight": InFlight.DEALT_AGAIN}, "DEALT_AGAIN needs ALL_TO_ALL wiring"),
        ({"in_flight": InFlight.ONE_COPY}, "ONE_COPY needs ALL_TO_ALL wiring"),
        ({"order": lambda *_: Order.BY_KEY}, "order BY_KEY is lost"),
        ({"order": lambda *_: Order.STRAIGHT}, "STRAIGHT needs one receiver"),
        ({"unchained": None}, "only ONE_TO_ONE wiring may be chained"),
        ({"receivers_of": lambda *_: range(0)}, "sender 0 of 2 reaches range"),
        ({"receivers_of": lambda *_: range(5)}, "sender 0 of 2 reaches range"),
        ({"receivers_of": lambda *_: range(1, 2)}, "no sender reaches subtask 0 of 3"),
        (
            {"wiring": Wiring.ALL_TO_ALL, "order": lambda *_: Order.STRAIGHT},
            "STRAIGHT needs one receiver",
        ),
    ],
)
def test_contradictions_are_refused(facts: dict[str, Any], problem: str) -> None:
    own: Any = type("Own", (Partitioning,), {**FACTS, **facts})
    with pytest.raises(ConfigurationError, match=f"partitioning own: .*{problem}"):
        check_wiring(own(), 2, 3, "map")


# Every one of minirt, and those from outside, keep to the contract.


class Contract(PartitioningContract):
    @pytest.fixture
    def records(self) -> list[dict[str, Any]]:
        return [{"n": n, "text": f"t{n % 5}"} for n in range(40)]


def function(key: Any, receivers: int) -> int:
    return int(key) * 7 % receivers


EXAMPLES: list[Partitioning] = [
    Forward(),
    Rebalance(),
    Rescale(),
    Broadcast(),
    Hash(NUMBER),
    Custom(function, NUMBER),
    ByRange(NUMBER, (10, 20, 25)),
    Mirrored(),
    Mirrored(ordered=True),
    Everywhere(),
]


class TestContract(Contract):
    @pytest.fixture(params=EXAMPLES, ids=lambda one: f"{one.name}-{one.order(2, 1).name}")
    def partitioning(self, request: pytest.FixtureRequest) -> Partitioning:
        found: Partitioning = request.param
        return found


def test_the_contract_is_tried_on_all() -> None:
    assert {type(one) for one in EXAMPLES} >= set(PARTITIONINGS)


class Turning(ByRange):
    """It says that it is pure, and is not."""

    name: ClassVar = "turning"
    turns: ClassVar = count()

    def targets(self, keys: Sequence[Any], receivers: int) -> Sequence[int]:
        return [next(self.turns) % receivers for _ in keys]


class Unlike(ByRange):
    """It deals columns otherwise than rows."""

    name: ClassVar = "unlike"

    def column_targets(self, columns: Sequence[Any], receivers: int) -> Sequence[int]:
        return [0 for _ in columns[0]]


@pytest.mark.parametrize("one", [Turning, Unlike])
def test_one_that_deals_otherwise_the_second_time_is_caught(one: type[ByRange]) -> None:
    contract, records = PartitioningContract(), [{"n": n} for n in range(40)]
    contract.test_captured_records_are_dealt_as_they_were(ByRange(NUMBER, (10, 20)), records)
    with pytest.raises(AssertionError):
        contract.test_captured_records_are_dealt_as_they_were(one(NUMBER, (10, 20)), records)


def test_the_kit_deals_by_all() -> None:
    source = Stage("source", (), "plain", True, 1, (2,))
    dealt = [Stage("map", (0,), edge, False, 3, (2,)) for edge in EDGES]
    plan = Plan((source, *dealt, Stage("count", (0,), "plain", True, 3, (2,))), 2, 8, forms=1)
    [env] = build(plan).forms
    assert {type(edge.partitioning) for edge in env.graph().edges} == set(PARTITIONINGS)


# One new file and one line.


def test_every_partitioning_of_minirt_is_a_file_and_a_line_in_the_registry() -> None:
    folder = ROOT / "minirt/partitionings"
    found = {
        one
        for module in folder.glob("[!_]*.py")
        for one in vars(__import__(f"minirt.partitionings.{module.stem}", fromlist=["*"])).values()
        if isinstance(one, type) and issubclass(one, Partitioning) and "name" in vars(one)
    }
    assert found == set(PARTITIONINGS)
    names = [one.name for one in PARTITIONINGS]
    assert len({*names}) == len(names)
    assert {path.stem for path in folder.glob("[!_]*.py")} == {*names}


KNOWS: dict[str, set[str]] = {
    "minirt/partitionings/__init__.py": {"the registry"},
    "minirt/api/stream.py": {"its method of the stream"},
    "minirt/api/dealing.py": {"what its method is given; that keys may be dealt once more"},
    "minirt/api/draft.py": {"what is meant where nothing is said"},
    "minirt/protocol/stored_edges.py": {"checkpoints of versions that stored names alone"},
    "minirt/testing/conformance/edges.py": {"its way into random jobs"},
}
"""Which files know one partitioning from another, and why: of these, only the first must be touched."""


@pytest.mark.parametrize("one", PARTITIONINGS, ids=lambda one: one.name)
def test_who_knows_a_partitioning(one: type[Partitioning]) -> None:
    own = f"minirt/partitionings/{one.name}.py"
    found = {f"minirt/{path}" for path in files_that(lambda tree: mentions(tree, one))} - {own}
    assert found <= KNOWS.keys()
    assert "minirt/partitionings/__init__.py" in found


@pytest.mark.parametrize(
    "code",
    [
        "from minirt.partitionings import Rebalance",
        "from minirt.partitionings.rebalance import Rebalance as R",
        "match link.kind:\n    case 'rebalance':\n        pass",
        "kind == 'rebalance'",
        "kind in ('rebalance', 'other')",
    ],
)
def test_who_would_know_one_is_found(code: str) -> None:
    assert mentions(ast.parse(code), Rebalance)
    assert not mentions(ast.parse(code), Rescale)


def mentions(tree: ast.AST, one: type[Partitioning]) -> bool:
    """Whether a module imports it, or compares something with its name."""
    if compares_with(tree, one.name):
        return True
    for node in nodes_of(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("minirt.partitionings"):
                if any(alias.name == one.__name__ for alias in node.names):
                    return True
            case ast.Assign(value=ast.Tuple(elts=[_, *_] as elements)):
                values = {e.value for e in elements if isinstance(e, ast.Constant)}
                if one.name in values and values <= {known.name for known in PARTITIONINGS}:
                    return True
    return False
