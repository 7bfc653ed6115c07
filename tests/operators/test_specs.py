"""What a spec must say of itself, and that a spec which says too little is refused at import."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import pytest

import minirt as rt
import minirt.operators
from minirt.operators import (
    OPERATORS,
    Form,
    Operator,
    OperatorContext,
    OperatorSpec,
    StateDealing,
)
from minirt.operators.join import JoinSpec
from minirt.operators.keyed_process import KeyedProcessSpec
from minirt.operators.sink import SinkSpec
from minirt.testing.conformance.stages import NOT_DRAWN
from tests.naming import compares_with, files_that, names_in

FACTS = {
    "kind": "doubling",
    "inputs": 1,
    "state": StateDealing.NONE,
    "takes": Form.ROWS,
    "build": lambda self, ctx: None,
}


def test_a_spec_that_says_all_is_accepted() -> None:
    type("Doubling", (OperatorSpec,), dict(FACTS))


@pytest.mark.parametrize("fact", FACTS)
def test_a_spec_that_leaves_out_a_fact_is_refused_at_import(fact: str) -> None:
    said = {name: value for name, value in FACTS.items() if name != fact}
    with pytest.raises(TypeError, match=f"operator Doubling does not say its {fact}"):
        type("Doubling", (OperatorSpec,), said)


def test_a_spec_that_says_nothing_is_refused_when_it_is_used() -> None:
    silent = type("Silent", (OperatorSpec,), {})
    silent.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    stream = rt.Environment().source(rt.SequenceSource(1))
    with pytest.raises(
        TypeError, match="Silent does not say its kind, inputs, state, takes, build"
    ):
        stream.apply(silent())


def test_facts_of_the_parent_count() -> None:
    @dataclass(frozen=True, slots=True)
    class Doubling(OperatorSpec):
        kind: ClassVar = "doubling"
        inputs: ClassVar = 1
        state: ClassVar = StateDealing.NONE
        takes: ClassVar = None

        def build(self, ctx: OperatorContext) -> Operator:
            raise NotImplementedError

    class Tripling(Doubling):
        kind: ClassVar = "tripling"

    assert Tripling().default_name == "tripling"
    assert Tripling().state is StateDealing.NONE


def test_every_operator_of_minirt_is_in_the_registry() -> None:
    modules = pkgutil.walk_packages(minirt.operators.__path__, "minirt.operators.")
    specs = {
        spec
        for module in modules
        for spec in vars(import_module(module.name)).values()
        if isinstance(spec, type) and issubclass(spec, OperatorSpec) and "kind" in vars(spec)
    }
    assert specs == set(OPERATORS)


MORE: dict[type[OperatorSpec], set[str]] = {
    SinkSpec: {  # What stands in for a sink has to find it; what prints a stream ends it.
        "api/trying.py",
        "laboratory/trial.py",
        "testing/coordinator.py",
        "testing/exploration/job.py",
        "testing/rehearsal.py",
        "testing/simulation.py",
    },
    # These are variants of it.
    JoinSpec: {"operators/join_as_of.py", "operators/join_ttl.py"},
    KeyedProcessSpec: {"operators/broadcast_process.py"},
    # It says why no stage draws these.
    **{spec: {"testing/conformance/stages/__init__.py"} for spec in NOT_DRAWN},
}
"""Which other files of minirt know an operator, and why: whoever adds one needs none of these."""


OTHER_MEANINGS: dict[str, set[str]] = {
    "map": {
        "testing/conformance/drawing.py",
        "testing/conformance/shrink.py",
    },  # A stage of the kit.
    "reduce": {"testing/conformance/stages/reduce.py"},  # Likewise.
    "sink": {"cli/conformance.py"},  # What `minirt conformance` is to test.
    "source": {"ui/figures.py", "ui/verdict.py"},  # Where a link comes from.
}
"""Where a text that is also the kind of an operator is compared with something else."""


@pytest.mark.parametrize("spec", OPERATORS, ids=lambda spec: spec.__name__)
def test_who_knows_an_operator(spec: type[OperatorSpec]) -> None:
    """What adding one touches: its file, the registry, and one file of `minirt/api` for its method."""
    own = spec.__module__.removeprefix("minirt.").replace(".", "/") + ".py"
    found = files_that(lambda tree: spec.__name__ in names_in(tree)) - MORE.get(spec, set())
    [method] = found - {own, "operators/__init__.py"}
    assert method.startswith("api/")


@pytest.mark.parametrize("kind", sorted({spec.kind for spec in OPERATORS}))
def test_who_compares_a_kind_of_operator(kind: str) -> None:
    assert files_that(lambda tree: compares_with(tree, kind)) <= OTHER_MEANINGS.get(kind, set())


def test_kinds_are_told_apart_by_name_unless_they_do_the_same_on_rows_and_columns() -> None:
    kinds = [spec.kind for spec in OPERATORS]
    assert sorted(kinds) == sorted([*set(kinds), "filter"])
