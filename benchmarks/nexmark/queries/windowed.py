"""Queries over windows of bids, and of those who register and sell."""

from __future__ import annotations

import pyarrow.compute as pc

import minirt as rt
from benchmarks.nexmark.events import Events


def q5(events: Events) -> rt.Stream:
    """Hot items: again every 2 s, the auctions with the most bids of the last 10 s, all that are equal."""
    bids = events.bids("auction").key_by("auction")
    counts = bids.window(rt.Sliding("10s", "2s")).aggregate(rt.Count("num"), uid="counts")
    # All windows end at different multiples of 2 s, and results have the last moment as their event time.
    end = rt.Tumbling("2s")
    ends = counts.select("num", "window_end").window_all(end).aggregate(rt.Max("num"), uid="most")
    same = {"num": "num_max", "window_end": "window_end"}
    return counts.join(ends, on=same, window=end, how="semi", uid="hot")


def q7(events: Events) -> rt.Stream:
    """Highest bid: the bids that have the highest price of their 10 s, both ends of these included."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    highest = (
        bids.select("price")
        .window_all(rt.Tumbling("10s"))
        .aggregate(rt.Max("price", "highest"), uid="highest")
    )
    # The event time of a result is 1 ms before the end of its window.
    in_window = ("-1ms", "9999ms")
    found = bids.join(highest, on={"price": "highest"}, within=in_window, uid="highest-bids")
    return found.select("auction", "bidder", "price", "dateTime", "extra")


def q8(events: Events) -> rt.Stream:
    """New users: who registered and opened an auction in the same 10 s."""
    time = pc.field("dateTime")
    registered = events.persons("id", "name", "dateTime")
    new = registered.with_column("starttime", pc.floor_temporal(time, 10, "second"))
    opened = events.auctions("seller")
    on, window = {"id": "seller"}, rt.Tumbling("10s")
    found = new.join(opened, on=on, window=window, how="semi", uid="new-sellers")
    return found.select("id", "name", "starttime")


def q11(events: Events) -> rt.Stream:
    """User sessions: how many bids each bidder makes without a pause of more than 10 s."""
    bids = events.bids("bidder").key_by("bidder")
    return bids.window(rt.Session("10s")).aggregate(rt.Count("bid_count"), uid="sessions")


def q12(events: Events) -> rt.Stream:
    """Bids of each bidder in each 10 s by the clock."""
    ten_seconds = rt.GlobalWindow(rt.AfterTime("10s", clock="processing"), purge=True)
    bids = events.bids("bidder").key_by("bidder")
    return bids.window(ten_seconds).aggregate(rt.Count("bid_count"), uid="counts")
