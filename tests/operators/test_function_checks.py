"""Functions that can never do what they are for are refused where they are written, by their names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import minirt as rt
from minirt.graph.keys import KeySelector
from minirt.partitionings.common.by_key import KeyPartitioning


def source() -> Any:
    return rt.Environment().source(rt.CollectionSource([{"k": 1, "n": 2}]), uid="s")


def hashes_through(key: Any) -> int:
    return hash(key)


class Hashing:
    def __call__(self, key: Any, count: int) -> int:
        return hash(key) % count

    def method(self, key: Any, count: int) -> int:
        return id(key) % count


scattered = hash
by_hash: Callable[..., int] = lambda key, count: hash(key) % count  # noqa: E731

ELSEWHERE = r"gives? other values in other processes"

UNSTABLE: dict[str, Callable[..., int]] = {
    "a lambda": by_hash,
    "a callable object": Hashing(),
    "a method": Hashing().method,
    "a partial": functools.partial(lambda salt, key, count: hash(key) % count, 1),
    "a partial that is given hash": functools.partial(lambda by, key, count: by(key) % count, hash),
    "a function that it calls": lambda key, count: hashes_through(key) % count,
    "another name of hash": lambda key, count: scattered(key) % count,
    "a function within": lambda key, count: sum(hash(part) for part in key) % count,
    "a method of the key": lambda key, count: key.__hash__() % count,
    "a captured function": (lambda inner: lambda key, count: inner(key, count))(by_hash),
    "a cached function": functools.cache(by_hash),
}


@pytest.mark.parametrize("way", UNSTABLE)
def test_a_partitioner_that_asks_for_hashes_is_refused(way: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=ELSEWHERE):
        source().partition_custom(UNSTABLE[way], "k")
    source().partition_custom(UNSTABLE[way], "k", pure=False)


@pytest.mark.parametrize("way", list(UNSTABLE))
def test_a_key_function_that_asks_for_hashes_is_refused(way: str) -> None:
    key = functools.partial(UNSTABLE[way], count=7)
    with pytest.raises(rt.ConfigurationError, match=ELSEWHERE):
        source().key_by(key).distinct(uid="d")
    with pytest.raises(rt.ConfigurationError, match=ELSEWHERE):
        source().partition_custom(lambda key, count: key % count, key)


def test_a_partitioning_of_ones_own_that_asks_for_hashes_is_refused() -> None:
    class Scattered(KeyPartitioning):
        name = "scattered"
        pure = True
        key = KeySelector(("k",))

        def targets(self, keys: Any, receivers: int) -> Any:
            return [hash(key) % receivers for key in keys]

    with pytest.raises(rt.ConfigurationError, match="gives other values in other processes"):
        Scattered().check(None, "scattered")


def forgets(record: Any) -> None:
    record["n"] += 1


def forgets_two(one: Any, other: Any) -> None:
    one.update(other)


class Forgets:
    def __call__(self, record: Any) -> None:
        record["n"] += 1


RETURNING_NOTHING: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda s, f: s.map(f),
    "filter": lambda s, f: s.filter(f),
    "flat_map": lambda s, f: s.flat_map(f),
    "map_batches": lambda s, f: s.map_batches(f),
    "key_by": lambda s, f: s.key_by(f),
}


@pytest.mark.parametrize("name", RETURNING_NOTHING)
@pytest.mark.parametrize("function", [forgets, Forgets(), functools.partial(forgets)], ids=repr)
def test_a_function_without_return_is_refused(name: str, function: Any) -> None:
    with pytest.raises(
        rt.ConfigurationError, match="returns nothing, whatever it is given; return"
    ):
        RETURNING_NOTHING[name](source(), function)


def test_so_it_is_for_two_values() -> None:
    with pytest.raises(rt.ConfigurationError, match="forgets_two returns nothing"):
        source().key_by("k").reduce(forgets_two, uid="r")
    with pytest.raises(rt.ConfigurationError, match="forgets_two returns nothing"):
        source().key_by("k").window(rt.CountWindow(2)).reduce(forgets_two, uid="r")


def sometimes(record: Any) -> Any:
    if record:
        return record
    return None


def otherwise_none(record: Any) -> Any:
    return record or None


def chosen(record: Any) -> Any:
    return record if record else None


def at_last(record: Any) -> Any:
    try:
        return record
    finally:
        len(record)


def raises(record: Any) -> Any:
    raise ValueError(record)


@pytest.mark.parametrize("function", [sometimes, otherwise_none, chosen, at_last, raises, str])
@pytest.mark.parametrize("name", RETURNING_NOTHING)
def test_a_function_that_may_return_something_is_taken(name: str, function: Any) -> None:
    RETURNING_NOTHING[name](source(), function)


WAYS_OF_REDUCING: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda s: s.key_by("k").reduce(lambda one, other: one.update(other), uid="r"),
    "reduce of plain values": lambda s: (
        s.map(lambda row: row["n"]).key_by(lambda n: 0).reduce(lambda one, other: None, uid="r")
    ),
    "window": lambda s: (
        s.key_by("k")
        .window(rt.CountWindow(3))
        .reduce(lambda one, other: one.update(other), uid="r")
    ),
}


@pytest.mark.parametrize("way", WAYS_OF_REDUCING)
def test_a_reduce_that_returns_none_is_named_with_its_record(way: str) -> None:
    env = rt.Environment()
    rows = [{"k": 1, "n": n} for n in range(5)]
    stream = env.source(rt.CollectionSource(rows), uid="s")
    WAYS_OF_REDUCING[way](stream).sink(rt.DiscardSink())
    with pytest.raises(
        rt.JobFailedError, match=r"uid r\) failed on record ({'k': 1, 'n': 1}|1)\n"
    ) as told:
        env.execute(runner="inline", restart=rt.Restart.none())
    assert "the function of reduce returned None" in str(told.value)


class Plain(rt.SplitReader):
    def read(self) -> Any:
        return None


class Bare:
    def read(self) -> Any:
        return None

    def close(self) -> None:
        pass


class Sets(Plain):
    def __init__(self) -> None:
        self.offset = 0


class Says(Plain):
    @property
    def offset(self) -> int:  # type: ignore[override]
        return 0


def source_of(opened: Callable[[Any], Any]) -> rt.Source:
    class One(rt.Source):
        def plan_splits(self, parallelism: int) -> list[rt.Split]:
            return [rt.Split("a")]

        def open_split(self, split: rt.Split, offset: Any) -> Any:
            return opened(offset)

    return One()


def assigned(offset: Any) -> Any:
    reader = Plain()
    reader.offset = offset
    return reader


@pytest.mark.parametrize("kind", [Plain, Bare])
def test_a_reader_without_offset_is_refused(kind: type) -> None:
    with pytest.raises(
        rt.ConfigurationError, match=rf"One \(uid x\): its reader {kind.__name__} never sets"
    ):
        rt.Environment().source(source_of(lambda offset: kind()), uid="x")


@pytest.mark.parametrize("opened", [lambda offset: Sets(), lambda offset: Says(), assigned])
def test_a_reader_with_offset_is_taken(opened: Any) -> None:
    rt.Environment().source(source_of(opened), uid="x")


class Frame:
    """As those of pandas: going through it gives the names of its columns."""

    columns = ("a", "b")
    shape = (1, 2)

    def __iter__(self) -> Any:
        return iter(self.columns)

    def __getitem__(self, name: str) -> Any:
        return [1]


class Emits(rt.Process):
    def process(self, record: Any, ctx: rt.ProcessContext) -> Any:
        return Frame()


@pytest.mark.parametrize(
    "use", [lambda s: s.flat_map(lambda record: Frame()), lambda s: s.process(Emits(), uid="p")]
)
def test_a_data_frame_is_no_list_of_records(use: Any) -> None:
    env = rt.Environment()
    use(env.source(rt.CollectionSource([1]))).sink(rt.DiscardSink())
    with pytest.raises(rt.JobFailedError, match="a Frame was returned where several records are"):
        env.execute(runner="inline", restart=rt.Restart.none())
