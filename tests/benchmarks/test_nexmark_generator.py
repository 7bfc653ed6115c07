"""The events of NexMark: the same whoever makes them, and shaped as the rules say."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from minirt import ConfigurationError
from minirt.laboratory.nexmark.generator import Generator, generator
from minirt.laboratory.nexmark.random import below, fractions, more_words, prices
from minirt.laboratory.nexmark.schemas import KINDS, SCHEMAS, Kind
from minirt.laboratory.nexmark.workload import BASE_TIME_MS, Workload

EVENTS = 100_000
GOLDEN = "4f27141e3280519aab72e2b653346d430f9a7bb39a66d61989fc408b2841fea5"


def table(kind: Kind, events: int = EVENTS, **options: Any) -> dict[str, Any]:
    """Columns as numpy arrays."""
    batch = generator(Workload(**options)).events(kind, 0, events)
    return {
        name: column.to_numpy(zero_copy_only=False)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def ids_of(kind: Kind, events: int = EVENTS) -> np.ndarray[Any, Any]:
    """The numbers of the events of a kind, with the default proportions."""
    numbers = np.arange(events)
    place = numbers % 50
    first, last = {"person": (0, 1), "auction": (1, 4), "bid": (4, 50)}[kind]
    return numbers[(first <= place) & (place < last)]


# The same events, however they are made


def test_the_first_events_never_change() -> None:
    """Whoever changes them makes old checkpoints and results incomparable."""
    digest = hashlib.sha256()
    for start in range(0, EVENTS, 20_000):
        for row in generator(Workload()).events("all", start, start + 20_000).to_pylist():
            digest.update(json.dumps(row, sort_keys=True, default=_milliseconds).encode() + b"\n")
    assert digest.hexdigest() == GOLDEN


def _milliseconds(time: dt.datetime) -> int:
    return int(time.replace(tzinfo=dt.UTC).timestamp() * 1000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [1, 7])
def test_any_slice_can_be_made_alone(kind: Kind, group: int) -> None:
    workload = Workload(seed=5, out_of_order_group=group)
    whole = Generator(workload).events(kind, 0, 3000)
    bounds = [0, 1, 2, 49, 50, 777, 2999, 3000]
    slices = [
        Generator(workload).events(kind, start, stop)
        for start, stop in reversed(list(pairwise(bounds)))
    ]
    joined = pa.Table.from_batches(slices[::-1])
    assert joined.to_pylist() == whole.to_pylist()
    assert whole.schema == SCHEMAS[kind]


def test_all_events_are_those_of_each_kind() -> None:
    every = generator(Workload()).events("all", 0, 1000)
    every.validate(full=True)
    rows = every.to_pylist()
    for number, kind in enumerate(KINDS[:3]):
        alone = generator(Workload()).events(kind, 0, 1000).to_pylist()
        assert [row[kind] for row in rows if row["event_type"] == number] == alone
        assert all(row[kind] is None for row in rows if row["event_type"] != number)
        assert all(
            row["dateTime"] == row[kind]["dateTime"] for row in rows if row["event_type"] == number
        )


def test_another_seed_makes_other_events() -> None:
    one, other = (table("bid", 1000, seed=seed) for seed in (1, 2))
    for column in ("auction", "bidder", "price", "channel", "url", "extra"):
        assert (one[column] != other[column]).any(), column
    assert (one["dateTime"] == other["dateTime"]).all()


def test_random_words_are_those_of_splitmix64() -> None:
    first = more_words(np.array([1234567], np.uint64), 3)
    assert first.tolist() == [
        [6457827717110365317, 3203168211198807973, 9817491932198370423],
    ]


def test_bounded_numbers_stay_below_their_bound() -> None:
    words = np.array([0, 2**64 - 1], np.uint64)
    for bound in (1, 3, 1000, 2**53 - 1):
        assert below(words, bound).tolist() == [0, bound - 1]
    assert below(words, 0).tolist() == [0, 0]


def test_prices_are_powers_of_ten() -> None:
    words = more_words(np.array([3], np.uint64), 500)[0]
    for word, price in zip(words.tolist(), prices(words).tolist(), strict=True):
        exact = Decimal(10) ** (Decimal(6 * (word >> 32)) / 2**32) * 100
        assert price == exact.quantize(Decimal(1))


# Shape


def test_kinds_come_in_their_proportions() -> None:
    types = table("all", 50_000)["event_type"]
    assert np.bincount(types).tolist() == [1000, 3000, 46_000]
    assert types[:50].tolist() == [0] + [1] * 3 + [2] * 46


def test_other_proportions() -> None:
    workload = {"persons": 2, "auctions": 1, "bids": 3}
    assert table("all", 12, **workload)["event_type"].tolist() == [0, 0, 1, 2, 2, 2] * 2
    assert table("person", 12, **workload)["id"].tolist() == [1000, 1001, 1002, 1003]
    assert table("auction", 12, **workload)["id"].tolist() == [1000, 1001]


@pytest.mark.parametrize(("kind", "wanted"), [("person", 200), ("auction", 500), ("bid", 100)])
def test_events_have_about_their_size(kind: Kind, wanted: int) -> None:
    batch = generator(Workload()).events(kind, 0, 50_000)
    if kind == "bid":
        assert pc.mean(pc.binary_length(batch["url"])).as_py() == pytest.approx(63, abs=1)
        batch = batch.drop_columns(["channel", "url"])
    strings = [column for column in batch.columns if column.type == pa.string()]
    sizes = 8 * (batch.num_columns - len(strings)) + sum(
        pc.binary_length(column).to_numpy() for column in strings
    )
    assert sizes.mean() == pytest.approx(wanted, rel=0.05)
    assert sizes.max() <= wanted * 1.25


def test_an_event_that_is_large_without_it_has_no_extra_text() -> None:
    assert set(table("person", 5000, person_bytes=20)["extra"]) == {""}


def test_ids_count_up() -> None:
    assert (table("person")["id"] == 1000 + np.arange(EVENTS // 50)).all()
    assert (table("auction")["id"] == 1000 + np.arange(EVENTS // 50 * 3)).all()


def test_references_are_to_recent_ids_and_at_most_ten_ahead() -> None:
    bid, auction = table("bid"), table("auction")
    newest_person = 1000 + ids_of("bid") // 50
    newest_auction = 1000 + ids_of("bid") // 50 * 3 + 2
    ahead = bid["auction"] - newest_auction
    assert (ahead.min(), ahead.max()) == (-100, 10)
    ahead = bid["bidder"] - newest_person
    assert ahead.max() == 10
    assert ahead.min() >= -1000
    ahead = auction["seller"] - (1000 + ids_of("auction") // 50)
    assert ahead.max() == 10
    assert ahead.min() >= -1000
    assert min(bid["auction"].min(), bid["bidder"].min(), auction["seller"].min()) == 1000


def hot_shares(**options: Any) -> list[float]:
    """How often bids are for the hot auction, by the hot bidder; and auctions are the hot seller's."""
    bid, auction = table("bid", **options), table("auction", **options)
    hundreds = (ids_of("bid") // 50 * 3 + 2) // 100, ids_of("bid") // 5000
    return [
        (bid["auction"] == 1000 + hundreds[0] * 100).mean(),
        (bid["bidder"] == 1001 + hundreds[1] * 100).mean(),
        (auction["seller"] == 1000 + ids_of("auction") // 5000 * 100).mean(),
    ]


def test_hot_keys_take_their_shares() -> None:
    assert hot_shares() == pytest.approx([0.5, 0.75, 0.75], abs=0.01)


def test_a_ratio_of_one_is_no_skew() -> None:
    even = {"hot_auction_ratio": 1, "hot_bidder_ratio": 1, "hot_seller_ratio": 1}
    assert max(hot_shares(**even)) < 0.02


@pytest.mark.parametrize("skew", [0.0, 0.3, 1.0])
def test_skew_of_bids_as_a_share(skew: float) -> None:
    assert hot_shares(bid_skew=skew)[:2] == pytest.approx([skew, skew], abs=0.02)


def test_prices_are_spread_evenly_by_their_logarithm() -> None:
    """Kolmogorov-Smirnov at the 1 % level; the seed is fixed."""
    logarithms = np.sort((np.log10(table("bid")["price"]) - 2) / 6)
    count = len(logarithms)
    distance = max(
        (np.arange(1, count + 1) / count - logarithms).max(),
        (logarithms - np.arange(count) / count).max(),
    )
    assert distance < 1.63 / count**0.5
    prices = table("bid")["price"]
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000


def test_shares_that_queries_select() -> None:
    bid = table("bid")
    euros = bid["price"] * 0.908
    assert ((euros > 1e6) & (euros < 5e7)).mean() == pytest.approx(0.283, abs=0.005)
    hot = np.isin(bid["channel"], ["Google", "Facebook", "Baidu", "Apple"])
    assert hot.mean() == pytest.approx(0.5, abs=0.01)
    with_id = np.array(["&channel_id=" in url for url in bid["url"]])
    assert (hot | with_id).mean() == pytest.approx(0.95, abs=0.01)
    assert not (hot & with_id).any()
    assert (table("auction")["category"] == 10).mean() == pytest.approx(0.2, abs=0.02)
    states = table("person")["state"]
    assert np.isin(states, ["OR", "ID", "CA"]).mean() == pytest.approx(0.5, abs=0.04)


def test_a_channel_always_has_the_same_url() -> None:
    bid = table("bid")
    assert len(set(zip(bid["channel"], bid["url"], strict=True))) == len(set(bid["channel"]))
    assert all(url.count("/") == 6 for url in set(bid["url"]))


def test_card_numbers_are_four_groups_of_four_digits() -> None:
    cards = generator(Workload()).events("person", 0, 50_000)["creditCard"]
    assert pc.all(pc.match_substring_regex(cards, r"^\d{4} \d{4} \d{4} \d{4}$")).as_py()
    assert len(set(cards.to_pylist())) == 1000


# Time


def milliseconds(column: Any) -> Any:
    return column.astype("datetime64[ms]").astype(np.int64) - BASE_TIME_MS


@pytest.mark.parametrize(("rate", "last_ms"), [(10_000, 9999), (1000, 99_999), (3e6, 33)])
def test_event_time_goes_by_the_rate(rate: float, last_ms: int) -> None:
    times = milliseconds(table("all", rate=rate)["dateTime"])
    assert (times[0], times[-1]) == (0, last_ms)
    assert (np.diff(times) >= 0).all()


def test_auctions_end_when_others_have_come() -> None:
    auction = table("auction")
    lasted = milliseconds(auction["expires"]) - milliseconds(auction["dateTime"])
    assert lasted.min() >= 1
    assert lasted.max() <= 334
    assert lasted.mean() == pytest.approx(167, rel=0.05)


def test_out_of_order_events_are_the_same_ones_within_each_group() -> None:
    ordered = generator(Workload()).events("all", 0, 1000).to_pylist()
    mixed = generator(Workload(out_of_order_group=100)).events("all", 0, 1000).to_pylist()
    assert mixed != ordered
    for start in range(0, 1000, 100):
        group = mixed[start : start + 100]
        assert sorted(group, key=repr) == sorted(ordered[start : start + 100], key=repr)


# Options


def test_bidders_as_nexmark_head_has_them() -> None:
    plain, head = (table("bid", 1000, compat=compat) for compat in (None, "nexmark-head"))
    assert (head.pop("bidder") == plain.pop("bidder") + 1000).all()
    assert all((head[name] == plain[name]).all() for name in plain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"persons": 0}, "persons"),
        ({"hot_auction_ratio": 0}, "hot_auction_ratio"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"rate": 0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"bid_skew": 1.1}, "bid_skew"),
        ({"bid_skew": float("nan")}, "bid_skew"),
        ({"bid_skew": 0.5, "hot_bidder_ratio": 3}, "only one"),
        ({"out_of_order_group": 953 * 2}, "953"),
        ({"compat": "beam"}, "compat"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Workload(**options)


def test_the_largest_seed_works() -> None:
    assert 0 <= fractions(more_words(np.array([2**64 - 1], np.uint64), 1)).max() < 1
    assert len(table("bid", 100, seed=2**64 - 1)["price"]) == 92
