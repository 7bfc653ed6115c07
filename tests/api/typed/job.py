"""Jobs as a user annotates them: mypy checks this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import minirt as rt


@dataclass(frozen=True)
class Click:
    user: str
    at: int


class Visits(rt.KeyedProcess[str, Click, tuple[str, int]]):
    """Counts the clicks of a user."""

    seen = rt.ValueState(0)
    last = rt.ValueState[int | None]()
    pages = rt.MapState[str, int]()

    def process(self, record: Click, ctx: rt.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        assert_type(self.seen.get(), int)
        assert_type(self.last.get(), int | None)
        assert_type(self.pages["/"], int)
        assert_type(ctx.key, str)
        self.seen.set(self.seen.get() + 1)
        yield ctx.key, self.seen.get()


class Unannotated(rt.KeyedProcess):
    """What has no types takes part all the same."""

    total = rt.ValueState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterator[Any]:
        yield self.total.get() + 1


class Longest(rt.WindowProcess[str, Click, int]):
    def process(self, records: list[Click], ctx: rt.WindowContext[str]) -> list[int]:
        return [len(records)]


async def ask(click: Click) -> float:
    return float(click.at)


def user_of(click: Click) -> str:
    return click.user


def earlier(one: Click, other: Click) -> Click:
    return min(one, other, key=lambda click: click.at)


env = rt.Environment()
clicks = env.source(rt.CollectionSource([Click("ann", 1)]), uid="clicks", parallelism=2)
assert_type(clicks, rt.Stream[Click])
assert_type(env.source(rt.SequenceSource(10)), rt.Stream[int])

users = clicks.map(user_of, name="users")
assert_type(users, rt.Stream[str])
assert_type(users.filter(str.isalpha), rt.Stream[str])
assert_type(users.flat_map(str.encode), rt.Stream[int])
assert_type(users.map_batches(lambda batch: [len(batch)]), rt.Stream[int])
assert_type(clicks.map_async(ask, capacity=10), rt.Stream[float])
assert_type(clicks.union(users), rt.Stream[Click | str])

keyed = clicks.key_by(user_of)
assert_type(keyed, rt.KeyedStream[str, Click])
assert_type(keyed.process(Visits(), uid="visits"), rt.Stream[tuple[str, int]])
assert_type(keyed.process(Unannotated()), rt.Stream[Any])
assert_type(clicks.key_by("user").reduce(earlier), rt.Stream[Click])
assert_type(keyed.window(rt.Tumbling("1min")).process(Longest()), rt.Stream[int])
assert_type(clicks.preview(3), list[Click])

anything: rt.Stream = env.source(rt.ParquetSource("clicks"))
anything.map(lambda row: row["user"]).print()
