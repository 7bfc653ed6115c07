"""What a job says without effect is refused where it is written."""

from __future__ import annotations

import pytest

from minirt import (
    AsyncFunction,
    ConfigurationError,
    CountWindow,
    DiscardSink,
    Environment,
    JobObserver,
    KeyedProcess,
    MapState,
    Process,
    SequenceSource,
    Tumbling,
    ValueState,
    WindowProcess,
)


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


def with_method(kind, name, **more):
    return type("Own", (kind,), {"process": Misspelt.process, name: Misspelt.process, **more})()


async def answer(self, record):
    return record


def test_methods_that_nobody_calls_are_refused_wherever_users_write_classes(stream, nowhere):
    with refused("nobody calls Own.on_timer"):
        windows = stream.key_by("n").window(CountWindow(2, 2))
        windows.process(with_method(WindowProcess, "on_timer"))
    with refused("nobody calls Own.on_close"):
        stream.map_async(with_method(AsyncFunction, "on_close", __call__=answer))
    with refused("Own.close is awaited; write `async def close`"):
        plain = type("Own", (AsyncFunction,), {"__call__": answer, "close": lambda self: None})
        stream.map_async(plain())
    stream.sink(nowhere())


@pytest.mark.parametrize("runner", ["inline", "processes"])
def test_an_observer_that_would_not_hear_is_refused(runner):
    class Deaf(JobObserver):
        def on_checkpoints(self, report):
            """Misspelt."""

    env = Environment()
    env.source(SequenceSource(3)).sink(DiscardSink())
    with refused("observer: nobody calls Deaf.on_checkpoints, did you mean on_checkpoint?"):
        env.execute(runner=runner, observer=Deaf())
    with refused("observer: expected JobObserver.*give an instance, Deaf"):
        env.execute(runner=runner, observer=Deaf)


class Counting:
    """Called for each record, whatever its key."""

    seen = ValueState(0)

    def __call__(self, *records):
        return records[0]


class Asking(AsyncFunction):
    seen = ValueState(0)

    async def __call__(self, record):
        return record


def test_state_of_an_object_that_is_called_is_refused(stream):
    keyed, message = stream.key_by("n"), "declares state 'seen', but .* has none: make it a KeyedPr"
    for add in (stream.map, stream.filter, stream.flat_map, stream.map_batches, keyed.reduce):
        with refused(message):
            add(Counting())
    with refused(message):
        keyed.window(CountWindow(2, 2)).reduce(Counting())
    with refused(message):
        stream.map_async(Asking())


def test_state_of_a_function_without_keys_is_refused(stream):
    for behind in (stream, stream.key_by("n")):
        with refused("declares state 'seen', but a Process has lists only.*make it a KeyedProcess"):
            behind.process(Declares())
        with refused("Makes.seen: declare state as a class attribute, not in __init__"):
            behind.process(Makes())


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
