"""Queries that join auctions with bids or with those who sell, and so keep what they have seen."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pyarrow.compute as pc

import minirt as rt
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries.query import KEPT

_EPOCH = dt.datetime(1970, 1, 1)
_CATEGORY = pc.field("category")
_STATE = pc.field("state")
_OPENED, _EXPIRES, _BID_AT = map(pc.field, ("dateTime", "expires", "dateTime_right"))


def q3(events: Events) -> rt.Stream:
    """Local items: who sells in category 10 in Oregon, Idaho or California."""
    here = (_STATE == "OR") | (_STATE == "ID") | (_STATE == "CA")
    auctions = (
        events.auctions("id", "seller", "category").filter(_CATEGORY == 10).select("id", "seller")
    )
    sellers = events.persons("id", "name", "city", "state").filter(here)
    sold = auctions.join(sellers, on={"seller": "id"}, ttl=KEPT, uid="sold-by")
    return sold.select("name", "city", "state", "id")


def q4(events: Events) -> rt.Stream:
    """Average price of each category: of the highest bids on its auctions while these are open."""
    best = (
        _bids_in_time(
            events.auctions("id", "category", "dateTime", "expires"),
            events.bids("auction", "price", "dateTime"),
        )
        .key_by("id", "category")
        .aggregate(rt.Max("price", "final"), uid="final")
    )
    return (
        best.key_by("id")
        .process(_Change(), uid="changes")
        .key_by("category")
        .aggregate(rt.Sum("price", "total"), rt.Sum("auctions", "auctions"), uid="prices")
        .select("category", avg=pc.field("total").cast("float64") / pc.field("auctions"))
    )


class _Change(rt.KeyedProcess):
    """What an auction adds to its category, as its highest bid replaces the one before it."""

    counted = rt.ValueState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        before, final = self.counted.value, record["final"]
        if final != before:
            self.counted.value = final
            yield {
                "category": record["category"],
                "price": final - (before or 0),
                "auctions": int(before is None),
            }


def q6(events: Events) -> rt.Stream:
    """Average selling price by seller: of the last ten auctions that have closed, one by one."""
    auctions = events.auctions("id", "seller", "dateTime", "expires").key_by("id")
    bids = events.bids("auction", "price", "dateTime").key_by("auction")
    closed = auctions.connect(bids).process(_Closing(), uid="closing")
    return closed.key_by("seller").process(_LastTen(), uid="last-ten")


class _Closing(rt.KeyedCoProcess):
    """An auction with its highest bid, once the watermark says that there will be no higher one."""

    auction = rt.ValueState()
    final = rt.ValueState()
    early = rt.ListState()
    """Bids that came before their auction, of which some are from before it was opened."""

    def process_left(self, record: Any, ctx: rt.KeyedContext) -> None:
        self.auction.value = record["seller"], ctx.timestamp, _milliseconds(record["expires"])
        ctx.set_timer(_milliseconds(record["expires"]))
        for at, price in self.early.get():
            self._bid(at, price)
        self.early.clear()

    def process_right(self, record: Any, ctx: rt.KeyedContext) -> None:
        assert ctx.timestamp is not None
        if self.auction.value is not None:
            self._bid(ctx.timestamp, record["price"])
        else:
            self.early.add((ctx.timestamp, record["price"]))
            ctx.set_timer(ctx.timestamp)

    def _bid(self, at: int, price: int) -> None:
        _, opened, expires = self.auction.value
        if opened <= at <= expires:
            self.final.value = max(price, self.final.value or 0)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        if (
            self.auction.value is None
        ):  # All auctions of that time have come: the bid is on none of them.
            self.early.set([bid for bid in self.early.get() if bid[0] > timestamp])
            return
        seller, _, expires = self.auction.value
        if timestamp == expires:
            if self.final.value is not None:
                yield {"seller": seller, "id": ctx.key, "price": self.final.value}
            self.auction.clear()
            self.final.clear()


class _LastTen(rt.KeyedProcess):
    """The mean of the last ten prices of a seller, in the order in which auctions closed."""

    prices = rt.ListState()
    closing = rt.MapState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        assert ctx.timestamp is not None
        at_once = self.closing.get(ctx.timestamp, {})
        self.closing[ctx.timestamp] = {**at_once, record["id"]: record["price"]}
        ctx.set_timer(ctx.timestamp)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        prices = self.prices.get()
        for auction, price in sorted(self.closing.pop(timestamp).items()):
            prices = [*prices, price][-10:]
            yield {"seller": ctx.key, "id": auction, "avg": sum(prices) / len(prices)}
        self.prices.set(prices)


def q9(events: Events) -> rt.Stream:
    """Winning bids: each auction with the highest bid while it is open, the earliest of equal ones."""
    bids = _bids_in_time(
        events.auctions(), events.bids("auction", "bidder", "price", "dateTime", "extra")
    )
    by = ["price", ("dateTime_right", "ascending")]
    return bids.key_by("id").top_n(1, by=by, uid="winning")


def q20(events: Events) -> rt.Stream:
    """Bids on auctions of category 10, with all that is known of both."""
    auctions = events.auctions().filter(_CATEGORY == 10)
    return events.bids().join(auctions, on={"auction": "id"}, ttl=KEPT, uid="expanded")


def _bids_in_time(auctions: rt.Stream, bids: rt.Stream) -> rt.Stream:
    """Each auction with each bid on it that came while it was open."""
    pairs = auctions.join(bids, on={"id": "auction"}, ttl=KEPT, uid="bids-on")
    return pairs.filter((_BID_AT >= _OPENED) & (_BID_AT <= _EXPIRES))


def _milliseconds(time: Any) -> int:
    return round((time - _EPOCH).total_seconds() * 1000)
