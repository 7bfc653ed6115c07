"""Persons, auctions and bids as record batches.

Events are numbered from 0 in the order in which they come. With out-of-order groups, the *id* of an
event differs from its position: ids decide what the event is and when it happened, positions when it comes.
"""

from __future__ import annotations

from enum import IntEnum, auto
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.laboratory.nexmark import text
from minirt.laboratory.nexmark.random import Ints, Words, below, fractions, prices, words
from minirt.laboratory.nexmark.schemas import ALL, KINDS, SCHEMAS, Kind
from minirt.laboratory.nexmark.vocabulary import CITIES, HOT_CHANNELS, NAMES, STATES
from minirt.laboratory.nexmark.workload import Workload

_FIRST_ID = 1000  # of persons, and of auctions
_HOT_PERIOD = 100  # so many persons or auctions have the same hot one among them
_ID_LEAD = 10  # so many ids that do not exist yet may be referred to
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_COLD_CHANNELS = 10_000


class _Field(IntEnum):
    """What a random number is for. The values decide what the events are: only ever append."""

    EXTRA_LENGTH = auto()
    EXTRA = auto()
    NAME = auto()
    EMAIL_USER = auto()
    EMAIL_HOST = auto()
    CARD = auto()
    CITY = auto()
    STATE = auto()
    ITEM = auto()
    DESCRIPTION = auto()
    INITIAL_BID = auto()
    RESERVE = auto()
    EXPIRES = auto()
    SELLER_HOT = auto()
    SELLER = auto()
    CATEGORY = auto()
    BID_AUCTION_HOT = auto()
    BID_AUCTION = auto()
    BIDDER_HOT = auto()
    BIDDER = auto()
    PRICE = auto()
    CHANNEL_HOT = auto()
    CHANNEL = auto()
    TEXT = auto()
    URL_FIRST = auto()
    URL_SECOND = auto()
    URL_THIRD = auto()
    URL_CHANNEL = auto()


class Generator:
    """Makes the events of a workload. Get one with `generator`, which keeps it: it takes 50 ms to build."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._seed = workload.seed
        longest = 2 * max(workload.person_bytes, workload.auction_bytes, workload.bid_bytes)
        self._text = text.Text(self._seed, _Field.TEXT, longest)
        self._channels = pa.array(
            [*HOT_CHANNELS, *(f"channel-{i}" for i in range(_COLD_CHANNELS))], pa.string()
        )
        self._urls = self._make_urls()

    def events(self, kind: Kind, start: int, stop: int) -> pa.RecordBatch:
        """Of the events at positions `start` up to, but not including, `stop` those of one kind, or all."""
        ids = self._ids(start, stop)
        if kind == "all":
            return self._all(ids)
        return self._of_kind(kind, ids[self._types(ids) == KINDS.index(kind)])

    def _of_kind(self, kind: Kind, ids: Ints) -> pa.RecordBatch:
        make = {"person": self._persons, "auction": self._auctions, "bid": self._bids}[kind]
        return pa.RecordBatch.from_arrays(make(ids), schema=SCHEMAS[kind])

    def _all(self, ids: Ints) -> pa.RecordBatch:
        types = self._types(ids)
        columns = [pa.array(types)]
        for number, kind in enumerate(KINDS[:3]):
            here = types == number
            columns.append(_spread(self._of_kind(kind, ids[here]), here))
        return pa.RecordBatch.from_arrays([*columns, _times(self._times_ms(ids))], schema=ALL)

    def _ids(self, start: int, stop: int) -> Ints:
        positions = np.arange(start, stop, dtype=np.int64)
        group = self._workload.out_of_order_group
        if group == 1:
            return positions
        within = positions * self._workload.scatter % group
        return positions - positions % group + within

    def _types(self, ids: Ints) -> npt.NDArray[np.int32]:
        workload = self._workload
        pattern = np.repeat(
            np.arange(3, dtype=np.int32), [workload.persons, workload.auctions, workload.bids]
        )
        return pattern[ids % workload.total]

    def _times_ms(self, ids: Ints) -> Ints:
        microseconds = (ids * (1e6 / self._workload.rate)).astype(np.int64)
        return self._workload.base_time_ms + microseconds // 1000

    def _random(self, field: _Field, ids: Ints) -> Words:
        return words(self._seed, field, ids)

    def _hot(self, field: _Field, ids: Ints, share: float) -> npt.NDArray[np.bool_]:
        return fractions(self._random(field, ids)) < share

    # Ids of persons and auctions count from 0 up to the last step, which adds _FIRST_ID.

    def _last_person(self, ids: Ints) -> Ints:
        """The newest person when each event happens."""
        epoch, place = np.divmod(ids, self._workload.total)
        persons = self._workload.persons
        return epoch * persons + np.minimum(place, persons - 1)

    def _last_auction(self, ids: Ints) -> Ints:
        """The newest auction when each event happens; -1 before the first."""
        epoch, place = np.divmod(ids, self._workload.total)
        auctions = self._workload.auctions
        since = np.clip(place - self._workload.persons, -1, auctions - 1)
        newest: Ints = epoch * auctions + since
        return newest

    def _some_person(self, field: _Field, ids: Ints, newest: Ints) -> Ints:
        people = newest + 1
        active = np.minimum(people, self._workload.active_people)
        return people - active + below(self._random(field, ids), active + _ID_LEAD)

    def _some_auction(self, field: _Field, ids: Ints, newest: Ints) -> Ints:
        oldest = np.maximum(newest - self._workload.in_flight_auctions, 0)
        return oldest + below(self._random(field, ids), newest - oldest + 1 + _ID_LEAD)

    def _extra(self, ids: Ints, size: Ints | int, wanted: int) -> pa.StringArray:
        """Text that brings events of that size to about the wanted one, in bytes."""
        missing = np.maximum(wanted - np.broadcast_to(size, ids.shape), 0)
        spread = np.rint(missing * 0.2).astype(np.int64)
        lengths = missing - spread + below(self._random(_Field.EXTRA_LENGTH, ids), 2 * spread)
        return self._text.slices(self._random(_Field.EXTRA, ids), lengths)

    def _persons(self, ids: Ints) -> list[pa.Array]:
        email = text.joined(
            text.strings(self._random(_Field.EMAIL_USER, ids), 7),
            "@",
            text.strings(self._random(_Field.EMAIL_HOST, ids), 5),
            ".com",
        )
        details = [
            self._pick(NAMES, _Field.NAME, ids),
            email,
            text.card_numbers(self._random(_Field.CARD, ids)),
            self._pick(CITIES, _Field.CITY, ids),
            self._pick(STATES, _Field.STATE, ids),
        ]
        size = 8 + sum(text.string_bytes(column) for column in details)
        return [
            pa.array(_FIRST_ID + self._last_person(ids)),
            *details,
            _times(self._times_ms(ids)),
            self._extra(ids, size, self._workload.person_bytes),
        ]

    def _auctions(self, ids: Ints) -> list[pa.Array]:
        item = text.strings(self._random(_Field.ITEM, ids), 20)
        description = text.strings(self._random(_Field.DESCRIPTION, ids), 100)
        initial = prices(self._random(_Field.INITIAL_BID, ids))
        newest_person = self._last_person(ids)
        seller = np.where(
            self._hot(_Field.SELLER_HOT, ids, self._workload.hot_seller_share),
            newest_person // _HOT_PERIOD * _HOT_PERIOD,
            self._some_person(_Field.SELLER, ids, newest_person),
        )
        size = 6 * 8 + text.string_bytes(item) + text.string_bytes(description)
        return [
            pa.array(_FIRST_ID + self._last_auction(ids)),
            item,
            description,
            pa.array(initial),
            pa.array(initial + prices(self._random(_Field.RESERVE, ids))),
            _times(self._times_ms(ids)),
            _times(self._expiry_ms(ids)),
            pa.array(_FIRST_ID + seller),
            pa.array(_FIRST_CATEGORY + below(self._random(_Field.CATEGORY, ids), _CATEGORIES)),
            self._extra(ids, size, self._workload.auction_bytes),
        ]

    def _expiry_ms(self, ids: Ints) -> Ints:
        """On average when as many further auctions have come as there are in flight."""
        workload = self._workload
        events = workload.in_flight_auctions * workload.total // workload.auctions
        now = self._times_ms(ids)
        horizon = self._times_ms(ids + events) - now
        return now + 1 + below(self._random(_Field.EXPIRES, ids), np.maximum(2 * horizon, 1))

    def _bids(self, ids: Ints) -> list[pa.Array]:
        workload = self._workload
        newest_auction, newest_person = self._last_auction(ids), self._last_person(ids)
        auction = np.where(
            self._hot(_Field.BID_AUCTION_HOT, ids, workload.hot_auction_share),
            newest_auction // _HOT_PERIOD * _HOT_PERIOD,
            self._some_auction(_Field.BID_AUCTION, ids, newest_auction),
        )
        # The second person of a hundred: the first one is the hot seller.
        bidder = np.where(
            self._hot(_Field.BIDDER_HOT, ids, workload.hot_bidder_share),
            newest_person // _HOT_PERIOD * _HOT_PERIOD + 1,
            self._some_person(_Field.BIDDER, ids, newest_person),
        )
        first_bidder = _FIRST_ID if workload.compat is None else 2 * _FIRST_ID
        random_channel = self._random(_Field.CHANNEL, ids)
        channel = pa.array(
            np.where(
                self._hot(_Field.CHANNEL_HOT, ids, 0.5),
                below(random_channel, len(HOT_CHANNELS)),
                len(HOT_CHANNELS) + below(random_channel, _COLD_CHANNELS),
            )
        )
        return [
            pa.array(_FIRST_ID + auction),
            pa.array(first_bidder + bidder),
            pa.array(prices(self._random(_Field.PRICE, ids))),
            self._channels.take(channel),
            self._urls.take(channel),
            _times(self._times_ms(ids)),
            self._extra(ids, 4 * 8, workload.bid_bytes),
        ]

    def _make_urls(self) -> pa.StringArray:
        """One a channel; nine in ten of the cold channels have theirs name an id of the channel."""
        numbers = np.arange(len(HOT_CHANNELS) + _COLD_CHANNELS)
        path = [
            text.strings(self._random(field, numbers), 5, special="_")
            for field in (_Field.URL_FIRST, _Field.URL_SECOND, _Field.URL_THIRD)
        ]
        page = text.joined("https://www.nexmark.com/", path[0], "/", path[1], "/", path[2], _PAGE)
        cold = numbers - len(HOT_CHANNELS)
        named = (cold >= 0) & self._hot(_Field.URL_CHANNEL, numbers, 0.9)
        ends = [
            f"&channel_id={_reversed_bits(int(number))}" if has_id else ""
            for number, has_id in zip(cold, named, strict=True)
        ]
        return text.joined(page, pa.array(ends))

    def _pick(self, of: pa.StringArray, field: _Field, ids: Ints) -> pa.StringArray:
        return of.take(pa.array(below(self._random(field, ids), len(of))))


@lru_cache(maxsize=4)
def generator(workload: Workload) -> Generator:
    """The generator of a workload, shared by all who ask in a process."""
    return Generator(workload)


_PAGE = "/item.htm?query=1"


def _reversed_bits(number: int) -> int:
    """The 32 bits of a number in reverse, as a signed number, without its sign."""
    turned = int(f"{number:032b}"[::-1], 2)
    return min(turned, (1 << 32) - turned)


def _times(milliseconds: Ints) -> Any:
    return pa.array(milliseconds.view("datetime64[ms]"))


def _spread(batch: pa.RecordBatch, here: npt.NDArray[np.bool_]) -> pa.StructArray:
    """The rows of the batch where `here` says so, null elsewhere."""
    if not batch.num_rows:
        return pa.nulls(len(here), pa.struct(list(batch.schema)))
    seen = np.concatenate([[0], np.cumsum(here)])
    columns = [_spread_column(column, here, seen) for column in batch.columns]
    return pa.StructArray.from_arrays(columns, fields=list(batch.schema), mask=pa.array(~here))


def _spread_column(column: pa.Array, here: npt.NDArray[np.bool_], seen: Ints) -> pa.Array:
    """Empty strings or zeros between: null is only what is around them. So no string is copied."""
    if pa.types.is_string(column.type):
        _, offsets, characters = column.buffers()
        spread = np.frombuffer(offsets, np.int32)[seen]
        return pa.StringArray.from_buffers(len(here), pa.py_buffer(spread), characters)
    values = np.zeros(len(here), np.int64)
    values[here] = column.view(pa.int64()).to_numpy()
    return pa.array(values).view(column.type)
