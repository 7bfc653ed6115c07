"""What a spec must say of itself, and that a spec which says too little is refused at import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
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
    folder = Path(minirt.operators.__file__).parent
    specs = {
        spec
        for module in folder.glob("*.py")
        for spec in vars(__import__(f"minirt.operators.{module.stem}", fromlist=["*"])).values()
        if isinstance(spec, type) and issubclass(spec, OperatorSpec) and "kind" in vars(spec)
    }
    assert specs == set(OPERATORS)


def test_kinds_are_told_apart_by_name_unless_they_do_the_same_on_rows_and_columns() -> None:
    kinds = [spec.kind for spec in OPERATORS]
    assert sorted(kinds) == sorted([*set(kinds), "filter"])
