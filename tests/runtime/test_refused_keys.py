"""A key that could not be found again is refused, wherever it is and however many subtasks there are."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import minirt as rt
from minirt.errors import JobFailedError

Build = Callable[[rt.Stream], rt.Stream]


class Count(rt.KeyedProcess):
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> list[Any]:
        self.count.value += 1
        return [self.count.value]


class Both(rt.KeyedCoProcess):
    def process_left(self, record: Any, ctx: rt.KeyedContext) -> None: ...

    def process_right(self, record: Any, ctx: rt.KeyedContext) -> None: ...


def key_of(record: Any) -> Any:
    return record


CONSUMERS: dict[str, Build] = {
    "reduce": lambda s: s.key_by(key_of).reduce(max),
    "process": lambda s: s.key_by(key_of).process(Count()),
    "connect": lambda s: (
        s.connect(s.map(str, parallelism=1)).key_by(key_of, key_of).process(Both())
    ),
    "map": lambda s: s.key_by(key_of).map(str),
}
REFUSED = [
    2.5,
    float("nan"),
    np.float64(0.5),
    Decimal("0.1"),
    (1, 2.5),
    (1, (2, 2.5)),
    [1],
    (1, [2]),
]


def run(records: list[Any], build: Build, parallelism: int) -> list[Any]:
    env, out = rt.Environment(parallelism=parallelism), rt.CollectSink()
    source = env.source(rt.CollectionSource(records), parallelism=1, uid="records")
    build(source.map(lambda record: record, parallelism=1)).sink(out)
    env.execute(runner="inline", options=rt.Options(allow_pickle=True))
    return out.rows


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("key", REFUSED, ids=repr)
def test_a_key_in_the_middle_of_a_batch(key: Any, consumer: str, parallelism: int) -> None:
    with pytest.raises(JobFailedError, match=r"failed on record.*cannot be a key"):
        run([*range(100), (1, 2), key, *range(100)], CONSUMERS[consumer], parallelism)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("consumer", ["reduce", "process", "connect"])
@pytest.mark.parametrize(("known", "key"), [(1, 1.0), (1, Decimal(1)), ((1, 2), (1, 2.0))])
def test_a_key_that_equals_one_that_is_known(
    known: Any, key: Any, consumer: str, parallelism: int
) -> None:
    with pytest.raises(JobFailedError, match=r"failed on record.*cannot be a key"):
        run([known] * 100 + [key], CONSUMERS[consumer], parallelism)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_keys_of_many_types(parallelism: int) -> None:
    keys = [1, "a", b"b", None, True, (1, "a"), (1, (2, None)), np.int64(7)]
    assert run(keys, CONSUMERS["process"], parallelism).count(2) == 1  # 1 and True are equal


def test_a_key_function_that_fails_names_the_record() -> None:
    with pytest.raises(JobFailedError, match=r"failed on record 'x'"):
        run([{"a": 1}, "x"], lambda s: s.key_by(lambda record: record["a"]).map(str), 1)
