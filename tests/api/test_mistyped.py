"""What a user mistypes in aggregates, windows, state, keys and times: what minirt then says, in a line."""

from __future__ import annotations

import pytest

import minirt as rt
from minirt.partitionings import KeyPartitioning, KeySelector


def refused(pattern):
    return pytest.raises(rt.ConfigurationError, match=pattern)


@pytest.mark.parametrize(
    "aggregate",
    [rt.Sum, rt.Min, rt.Mean, rt.First, rt.StdDev, rt.Collect, rt.TopN, rt.CountDistinct],
)
def test_what_an_aggregate_reads_and_is_called_are_texts(stream, aggregate):
    keyed = stream.key_by("k")
    for column in (None, 0):
        with refused(f"{aggregate.__name__} reads a column, a str, not {column}"):
            keyed.aggregate(aggregate(column))
    for name in (0, 0.5, ""):
        with refused("name of its results is a non-empty str, not .*; options are given by name"):
            keyed.aggregate(aggregate("v", name))


def test_options_of_aggregates_have_types(stream):
    with refused("ArgMin reads a column, a str, not 3"):
        stream.key_by("k").aggregate(rt.ArgMin("v", by=3))
    with refused("bits must be a whole number from 4 to 21, got '12'"):
        rt.CountDistinct("v", bits="12")
    with refused("approximate is True or False, not 'yes'"):
        rt.CountDistinct("v", approximate="yes")
    with refused("least is True or False, not 'no'"):
        rt.TopN("v", least="no")
    with refused("ddof is 0 or 1, not True"):
        rt.Variance("v", ddof=True)


@pytest.mark.parametrize("name", ["window_start", "window_end", "pane"])
def test_no_key_is_called_as_a_column_of_windows(stream, name):
    with refused(f"two columns would be called '{name}', as the key is; rename that column"):
        windows = stream.key_by("k", name).window(rt.Tumbling("1s"))
        windows.aggregate(rt.Count(), emit="updates")


def test_a_key_column_that_is_there_twice_would_be_two_results(stream):
    with refused("two columns would be called 'k'"):
        stream.key_by("k", "k").aggregate(rt.Count())


def test_durations_in_event_time_are_whole_milliseconds_and_have_an_end():
    for wrong in ("1.5ms", "2001us", 0.0015):
        with refused("the size of a window must be of whole milliseconds"):
            rt.Tumbling(wrong)
        with refused("ttl must be of whole milliseconds"):
            rt.ValueState(ttl=wrong)
    for number in range(10_000):
        assert rt.Tumbling(0.001 + number / 1000).size_ms == number + 1
    with refused("bound must be at most 100000d"):
        rt.Watermarks.bounded("100001d", timestamp="t")
    with refused("allowed_lateness must be at most 100000d"):
        rt.Tumbling("1s", allowed_lateness="1000000d")


class TheClass(rt.KeyedProcess):
    seen = rt.ListState

    def process(self, record, ctx):
        return None


class Twice(rt.KeyedCoProcess):
    one = rt.ValueState(name="same")
    two = rt.ValueState(name="same")

    def process_left(self, record, ctx):
        return None

    def process_right(self, record, ctx):
        return None


class Made(rt.KeyedProcess):
    def __init__(self):
        self.seen = rt.MapState()

    def process(self, record, ctx):
        return None


def test_wrong_declarations_of_state_are_refused_where_the_job_is_built(stream):
    with refused(r"TheClass.seen is the class ListState: declare a state by seen = ListState\(\)"):
        stream.key_by("k").process(TheClass())
    with refused("Made.seen: declare state as a class attribute"):
        stream.key_by("k").process(Made())
    with refused("Twice: one and two declare a state of the same name, 'same'"):
        stream.key_by("k").connect(stream.key_by("k")).process(Twice())
    with refused("must not have an '@'"):
        rt.ValueState(name="seen@event")


class Dealt(KeyPartitioning):
    name = "dealt"
    pure = True
    key = KeySelector(("shop",))

    def targets(self, keys, receivers):
        return [0 for _ in keys]


@pytest.mark.parametrize(
    ("deal", "parallelism"),
    [
        (lambda numbers: numbers.key_by("shop").reduce(max), 1),
        (lambda numbers: numbers.key_by("shop").reduce(max), 2),
        (lambda numbers: numbers.partition_by(Dealt()), 2),
    ],
)
@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"n": 1}, "record {'n': 1}: it has no column 'shop'; there are n"),
        (7, "record 7: a int has no columns, which the key 'shop' needs: make records dicts"),
        ([1], "record [1]: a list has no columns, which the key 'shop' needs"),
    ],
)
def test_a_record_without_the_column_of_the_key_is_named_in_one_line(
    deal, parallelism, record, why
):
    env = rt.Environment(parallelism=parallelism)
    numbers = env.source(rt.CollectionSource([record]), uid="numbers")
    deal(numbers).map(lambda each: each, chain=False).sink(rt.DiscardSink())
    with pytest.raises(rt.JobFailedError) as failed:
        env.execute(runner="inline")
    assert why in str(failed.value)
    assert "\n" not in str(failed.value)


def test_an_event_time_of_what_is_no_dict():
    env = rt.Environment()
    marks = rt.Watermarks.monotonous(timestamp="at")
    env.source(rt.CollectionSource([1]), watermarks=marks).sink(rt.DiscardSink())
    with pytest.raises(rt.JobFailedError, match="'at' is the event time: records must be dicts"):
        env.execute(runner="inline")


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        (("at", "5s"), "bound_ms is a number of milliseconds, not '5s'; Watermarks.bounded takes"),
        (("at", -1), "bound_ms is a number of milliseconds, not -1"),
        (("at", True), "bound_ms is a number of milliseconds, not True"),
        (("at", 5, "1s"), "idle_timeout is a number of seconds, not '1s'; Watermarks.bounded and"),
        (("at", 5, 0), "idle_timeout is a number of seconds, not 0"),
        (("", 5), "timestamp is a column name or a function, not ''"),
    ],
)
def test_watermarks_that_are_made_by_hand_take_numbers(marks, why):
    with refused(why):
        rt.Watermarks(*marks)
