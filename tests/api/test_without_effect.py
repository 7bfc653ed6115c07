"""What a job says without effect is refused where it is written."""

from __future__ import annotations

import pytest

from minirt import ConfigurationError, KeyedProcess, MapState, Process, ValueState


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
    for behind in (stream, stream.key_by("n")):
        with refused("declares state 'seen', but a Process has lists only.*make it a KeyedProcess"):
            behind.process(Declares())
        with refused("Makes.seen: declare state as a class attribute, not in __init__"):
            behind.process(Makes())


def test_records_that_are_dealt_twice_are_refused(stream):
    other = stream.map(str, uid="other")
    for dealt in (other.broadcast(), other.rebalance(), other.partition_custom(max, "n")):
        with refused("^map: str .uid other.: its records are dealt twice, by .* and then by hash"):
            stream.connect(dealt).key_by("n", "n")
        with refused("dealt twice"):
            dealt.key_by("n")
        with refused("dealt twice"):
            stream.union(dealt).forward()
    other.key_by("n").key_by("m").rebalance().map(str)
