"""What a job says without effect is refused where it is written."""

from __future__ import annotations

import pytest

from minirt import ConfigurationError, KeyedProcess, MapState, Process, Tumbling, ValueState


def refused(pattern):
    return pytest.raises(ConfigurationError, match=pattern)


class Misspelt(KeyedProcess):
    def process(self, record, ctx):
        return None

    def on_timers(self, timestamp, ctx):
        return None


class Timed(Process):
    def process(self, record, ctx):
        return None

    def on_timer(self, timestamp, ctx):
        return None


class Declares(Process):
    seen = MapState()

    def process(self, record, ctx):
        return None


class Makes(Process):
    def __init__(self):
        self.seen = ValueState()

    def process(self, record, ctx):
        return None


def test_methods_that_nobody_calls_are_refused(stream):
    with refused("nobody calls Misspelt.on_timers, did you mean on_timer?"):
        stream.key_by("n").process(Misspelt())
    with refused("nobody calls Timed.on_timer"):
        stream.process(Timed())


def test_state_of_a_function_without_keys_is_refused(stream):
    for process in (Declares(), Makes()):
        with refused("declares state 'seen', but a Process has none: make it a KeyedProcess"):
            stream.process(process)
        with refused("make it a KeyedProcess"):
            stream.key_by("n").process(process)


def test_records_that_are_dealt_twice_are_refused(stream):
    other = stream.map(str, uid="other")
    for dealt in (
        *(other.broadcast(), other.rebalance(), other.partition_custom(max, "n")),
        *(other.key_by("n"), other.key_by("m").union(other)),
    ):
        with refused("map: str .uid other.: its records are dealt twice, by .* and then by hash"):
            stream.connect(dealt).key_by("n", "n")
        with refused("dealt twice"):
            dealt.key_by("n")
        with refused("dealt twice"):
            stream.union(dealt).forward()
        with refused("dealt twice"):
            dealt.rebalance()


def test_a_key_that_nobody_goes_by_is_refused(stream):
    other, hour = stream.map(dict, uid="other"), Tumbling("1h")
    for keyed in (other.key_by("n"), other.key_by("n").union(other)):
        with refused("^window_all on .*: key_by has no effect before it .hash by n.; .*window"):
            keyed.window_all(hour)
        for left, right in ((keyed, stream), (stream, keyed)):
            with refused("^join on .*: key_by has no effect before it .*on=... says the key"):
                left.join(right, on="n", window=hour)
