"""Queries of NexMark: auctions that people open and bid on, at a steady pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Count, Max, Sum
from minirt.api.environment import Environment
from minirt.api.stream import Stream
from minirt.functions import KeyedContext, KeyedCoProcess
from minirt.laboratory.measured import Verification
from minirt.laboratory.nexmark.schemas import Kind
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.paced_events import PacedEvents, given_out
from minirt.laboratory.workloads.tally import TallySink, judge_tally
from minirt.state.handles import ListState, ValueState
from minirt.watermarks import Watermarks
from minirt.windows import Tumbling

Query = Literal["q1", "q3", "q8", "q12"]

STATES = ("OR", "ID", "CA")
CATEGORY = 10
"""The sellers and the auctions that query 3 asks for."""

_FACTORS = (2654435761, 40503, 2246822519)
_MASK = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Nexmark(Workload):
    """Persons, auctions and bids, `events_per_s` of all together; an event happens when it is due.

    `q1` computes a price for each bid, without state. `q3` joins sellers of three states with their
    auctions, and keeps both for ever. `q8` finds those who registered and opened an auction in the same
    window of `window_s`. `q12` counts the bids of each bidder in each window: by event time, which here
    is the wall clock at which the bid was due; the original goes by the clock itself.
    """

    latency_from: ClassVar = "made"
    """When the newest of the events was due that made a result."""
    defaults: ClassVar = Defaults(options={"checkpointing.interval": "1s"})

    query: Query = "q1"
    events_per_s: float = 50_000.0
    window_s: float = 2.0

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment(f"nexmark-{self.query}", parallelism=parallelism)

        def events(kind: Kind) -> Stream:
            source = PacedEvents(place, kind, max(1.0, self.events_per_s))
            in_order = Watermarks.monotonous(timestamp="dateTime")
            found = env.source(source, uid=f"{kind}s", watermarks=in_order)
            return found.with_column(
                "made", pc.field("dateTime").cast(pa.int64()), uid=f"made-{kind}"
            )

        _QUERIES[self.query](events, self._window_ms).sink(TallySink(place), uid="results")
        return env

    def verify(self, place: Place) -> Verification:
        found = _EXPECTED[self.query](place, self._window_ms)
        if found is None:
            words = "the sources did not come to an end, so nobody knows what must be there"
            return Verification("not verified", words)
        return judge_tally(place, *found, "as results")

    @property
    def _window_ms(self) -> int:
        return max(1, int(self.window_s * 1000))


Events = Callable[[Kind], Stream]


def q1(events: Events, window_ms: int) -> Stream:
    """Every bid with its price in euros, in thousandths of one."""
    priced = events("bid").select(
        "auction", "bidder", "made", euros=pc.multiply(pc.field("price"), 908), uid="euros"
    )
    return priced.select(
        "made", records=_ONE, check=_mixed("auction", "bidder", "euros"), uid="checked"
    )


def q3(events: Events, window_ms: int) -> Stream:
    """Who sells in category 10, of those who live in Oregon, Idaho or California."""
    state = pc.field("state")
    sellers = events("person").filter(
        (state == STATES[0]) | (state == STATES[1]) | (state == STATES[2]), uid="sellers"
    )
    auctions = events("auction").filter(pc.field("category") == CATEGORY, uid="auctions-10")
    known = sellers.select("id", "name", "city", "state", uid="known").key_by("id")
    offered = auctions.select("id", "seller", "made", uid="offered").key_by("seller")
    return known.connect(offered).process(_SellersOfAuctions(), uid="sold-by")


class _SellersOfAuctions(KeyedCoProcess):
    """A seller, and the auctions that came before; all that come later find the seller."""

    seller = ValueState()
    waiting = ListState()

    def process_left(self, record: Any, ctx: KeyedContext) -> Iterator[Any]:
        self.seller.value = {name: record[name] for name in ("name", "city", "state")}
        for auction in self.waiting.get():
            yield self._sold(auction)
        self.waiting.clear()

    def process_right(self, record: Any, ctx: KeyedContext) -> Iterator[Any]:
        if self.seller.value is None:
            self.waiting.add(record)
        else:
            yield self._sold(record)

    def _sold(self, auction: Any) -> dict[str, Any]:
        check = mix(auction["id"], auction["seller"])
        return {**self.seller.value, "made": auction["made"], "records": 1, "check": int(check)}


def q8(events: Events, window_ms: int) -> Stream:
    """Who registered and opened an auction in the same window."""
    registered = events("person").select("id", "made", person=_ONE, opened=_NONE, uid="registered")
    opened = events("auction").select(
        "made", id=pc.field("seller"), person=_NONE, opened=_ONE, uid="opened"
    )
    both = registered.union(opened.select("id", "made", "person", "opened", uid="in-order"))
    counted = (
        both.key_by("id")
        .window(Tumbling(f"{window_ms}ms"))
        .aggregate(
            Max("person", "person"), Max("opened", "opened"), Max("made", "made"), uid="windows"
        )
    )
    new = counted.filter((pc.field("person") == 1) & (pc.field("opened") == 1), uid="new")
    numbered = new.with_column("window", pc.divide(pc.field("made"), window_ms), uid="window")
    return numbered.select("made", records=_ONE, check=_mixed("id", "window"), uid="checked")


def q12(events: Events, window_ms: int) -> Stream:
    """How many bids each bidder made in each window."""
    bids = events("bid").select(
        "bidder", "made", check=_mixed("auction", "bidder", "price"), uid="bids-of"
    )
    windows = bids.key_by("bidder").window(Tumbling(f"{window_ms}ms"))
    return windows.aggregate(
        Count("records"), Sum("check", "check"), Max("made", "made"), uid="counts"
    )


_QUERIES: Mapping[Query, Callable[[Events, int], Stream]] = {
    "q1": q1,
    "q3": q3,
    "q8": q8,
    "q12": q12,
}

_ONE, _NONE = pc.scalar(1), pc.scalar(0)


def mix(*values: Any) -> Any:
    """A number below 2 to the 31st by which a result is known, of numbers or arrays of them."""
    with np.errstate(over="ignore"):
        parts = [
            np.int64(value) * np.int64(factor)
            for value, factor in zip(values, _FACTORS, strict=False)
        ]
        return np.bitwise_and(np.sum(parts, axis=0), _MASK)


def _mixed(*columns: str) -> pc.Expression:
    """The same of columns."""
    parts = [
        pc.multiply(pc.field(name), factor) for name, factor in zip(columns, _FACTORS, strict=False)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = pc.add(total, part)
    return pc.bit_wise_and(total, _MASK)


Expected = tuple[int, int]
"""How many results there must be, and the sum of their checks."""


def _all(place: Place, kind: Kind, *names: str) -> list[Any] | None:
    """These columns of all events of a kind that there were."""
    batches = given_out(place, kind)
    if batches is None:
        return None
    tables = [batch.select(names) for batch in batches]
    found = pa.Table.from_batches(tables) if tables else None
    if found is None:
        return [np.empty(0, np.int64) for _ in names]
    return [_numbers(found.column(name)) for name in names]


def _numbers(column: pa.ChunkedArray) -> Any:
    return np.asarray(column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column)


def _expected_q1(place: Place, window_ms: int) -> Expected | None:
    found = _all(place, "bid", "auction", "bidder", "price")
    if found is None:
        return None
    auction, bidder, price = found
    return len(price), int(mix(auction, bidder, price * 908).sum())


def _expected_q12(place: Place, window_ms: int) -> Expected | None:
    """Each bid counts in one result."""
    found = _all(place, "bid", "auction", "bidder", "price")
    return None if found is None else (len(found[0]), int(mix(*found).sum()))


def _expected_q3(place: Place, window_ms: int) -> Expected | None:
    persons = _all(place, "person", "id", "state")
    auctions = _all(place, "auction", "id", "seller", "category")
    if persons is None or auctions is None:
        return None
    known = persons[0][np.isin(persons[1], STATES)]
    id, seller, category = auctions
    sold = (category == CATEGORY) & np.isin(seller, known)
    return int(sold.sum()), int(mix(id[sold], seller[sold]).sum())


def _expected_q8(place: Place, window_ms: int) -> Expected | None:
    persons = _all(place, "person", "id", "dateTime")
    auctions = _all(place, "auction", "seller", "dateTime")
    if persons is None or auctions is None:
        return None
    registered, opened = (
        {*zip(ids.tolist(), (at // window_ms).tolist(), strict=True)}
        for ids, at in (persons, auctions)
    )
    both = sorted(registered & opened)
    return len(both), sum(int(mix(id, window)) for id, window in both)


_EXPECTED: Mapping[Query, Callable[[Place, int], Expected | None]] = {
    "q1": _expected_q1,
    "q3": _expected_q3,
    "q8": _expected_q8,
    "q12": _expected_q12,
}
