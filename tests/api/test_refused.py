"""Wrong jobs: refused before they run, with the operator named."""

from __future__ import annotations

import functools
import threading

import pyarrow as pa
import pytest

from minirt import (
    ConfigurationError,
    Environment,
    KeyedCoProcess,
    KeyedProcess,
    Process,
    Watermarks,
)

SCHEMA = pa.schema([("origin", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us"))])


class Pass(Process):
    def process(self, record, ctx):
        return [record]


class Count(KeyedProcess):
    def process(self, record, ctx):
        yield record


def refused(pattern):
    return pytest.raises(ConfigurationError, match=pattern)


# Keys


@pytest.fixture
def typed(env, numbers):
    return env.source(numbers(SCHEMA), uid="typed")


def test_an_unknown_key_column_is_refused_with_the_nearest_one(typed):
    with refused(r"key_by on Numbers \(uid typed\): .*'orign'; did you mean 'origin'"):
        typed.key_by("orign")


def test_an_unknown_column_with_nothing_near_lists_the_columns(typed):
    with refused("'xyz'; there are origin, n, t"):
        typed.key_by("xyz")


def test_columns_stay_known_through_filter_partitioning_and_union(typed):
    same = typed.filter(bool).rebalance().union(typed.broadcast())
    with refused("no column 'm'"):
        same.key_by("m")


def test_columns_are_unknown_after_map_and_in_a_union_of_different_ones(env, numbers, typed):
    other = env.source(numbers(pa.schema([("m", pa.int64())])), uid="other")
    typed.map(dict).key_by("anything")
    typed.union(other).key_by("anything")
    typed.union(typed.map(dict)).key_by("anything")


def test_a_column_of_a_type_without_stable_hash_is_refused(env, numbers):
    schema = pa.schema([("origin", pa.string()), ("delay", pa.float64())])
    typed = env.source(numbers(schema), uid="floats")
    typed.key_by("origin")
    with refused(r"floats\): column 'delay' cannot be a key"):
        typed.key_by("origin", "delay")


def test_a_custom_partitioner_may_see_keys_of_any_type(env, numbers):
    typed = env.source(numbers(pa.schema([("delay", pa.float64())])), uid="floats")
    typed.partition_custom(lambda key, n: 0, "delay")
    with refused("no column 'u'"):
        typed.partition_custom(lambda key, n: 0, "u")


def to_float(record) -> float:
    return 1.0


def to_list(record) -> list[int]:
    return []


def to_nested(record) -> tuple[int, dict[str, int]] | None:
    return (1, {}) if record else None


def to_unknown(record) -> Missing:  # noqa: F821
    return 1


def to_tuple(record) -> tuple[int, str]:
    return (1, "")


@pytest.mark.parametrize(
    "function",
    [hash, id, lambda r: hash(r["n"]) % 7, lambda r: id(r)],
    ids=["hash", "id", "calls hash", "calls id"],
)
def test_a_key_that_differs_from_process_to_process_is_refused(stream, function):
    with refused(r"key_by on Numbers \(uid numbers\): (hash|id)\(\) gives other values"):
        stream.key_by(function)


@pytest.mark.parametrize(
    ("function", "kind"),
    [(to_float, "float"), (to_list, "list"), (to_nested, "dict"), (set, "set"), (float, "float")],
)
def test_a_key_function_that_returns_an_unhashable_type_is_refused(stream, function, kind):
    with refused(f"returns {kind}, which cannot be hashed stably"):
        stream.key_by(function)


@pytest.mark.parametrize("function", [to_tuple, to_unknown, str, lambda r: r.id, lambda r: r.hash])
def test_a_key_function_that_may_be_stable_is_accepted(stream, function):
    stream.key_by(function)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((), "at least one column"),
        ((3,), "columns or a function, not 3"),
        (("n", str), "either columns or one function"),
        ((lambda a, b: a,), "missing a required argument: 'b'"),
    ],
)
def test_a_key_that_is_no_key_is_refused(stream, key, message):
    with refused(f"key_by on Numbers .*{message}"):
        stream.key_by(*key)


def test_sides_keyed_by_different_numbers_of_columns_are_refused(stream):
    with refused("keyed by 2 columns and .* by 1"):
        stream.connect(stream).key_by(["a", "b"], "c")


# Functions


async def coroutine(record):
    return record


def generator(record):
    yield record


class AsyncCallable:
    async def __call__(self, record):
        return record


@pytest.mark.parametrize("method", ["map", "filter", "flat_map", "map_batches"])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "expected a function of the (record|batch), got 3"),
        (lambda: 1, "too many positional arguments"),
        (lambda a, b: 1, "missing a required argument: 'b'"),
        (coroutine, "coroutine is a coroutine function"),
        (AsyncCallable(), "AsyncCallable is a coroutine function"),
    ],
    ids=["not callable", "no argument", "two arguments", "coroutine", "asynchronous object"],
)
def test_a_function_that_cannot_be_called_is_refused(stream, method, function, message):
    with refused(rf"^{method}.*: .*{message}"):
        getattr(stream, method)(function)


@pytest.mark.parametrize("method", ["map", "filter", "map_batches"])
def test_a_generator_is_refused_where_one_value_is_wanted(stream, method):
    with refused("generator is a generator"):
        getattr(stream, method)(generator)


def test_a_generator_is_welcome_in_flat_map(stream):
    stream.flat_map(generator)


@pytest.mark.parametrize(
    "function", [str, dict, print, "{}".format, lambda *a: a, lambda r, k=1: r]
)
def test_a_function_whose_arguments_fit_or_are_unknown_is_accepted(stream, function):
    stream.map(function)


def test_reduce_and_connected_functions_are_checked_as_well(stream):
    with refused("^reduce.*the value so far and the record: too many"):
        stream.key_by("n").reduce(lambda a: a)
    with refused("^co_map.*the right record.*missing"):
        stream.connect(stream).map(str, lambda a, b: a)
    with refused("^partition_custom on .*the key and the parallelism: too many"):
        stream.partition_custom(lambda key: 0, "n")


def test_purity_of_a_partitioner_is_a_bool(stream):
    with refused("^partition_custom on .*pure is True or False, not 'no'"):
        stream.partition_custom(max, "n", pure="no")


def test_an_unknown_batch_format_is_refused(stream):
    with refused("""map_batches.*: format must be "rows" or "columns", got 'arrow'"""):
        stream.map_batches(sorted, "arrow")


# Process functions


class Wrong(Process):
    def process(self, record):
        return [record]


class Asynchronous(KeyedCoProcess):
    def process_left(self, record, ctx):
        return None

    async def process_right(self, record, ctx):
        return None


def test_a_process_function_of_the_wrong_class_is_refused(stream):
    with refused("process: Count.*expected Process.*call key_by first"):
        stream.process(Count())
    with refused("expected KeyedProcess, got 3"):
        stream.key_by("n").process(3)
    with refused("process: Count.*expected KeyedCoProcess"):
        stream.connect(stream).key_by("n", "n").process(Count())


def test_a_class_in_place_of_an_instance_is_refused_with_a_hint(stream, nowhere):
    with refused(r"give an instance, Pass\(...\), not the class"):
        stream.process(Pass)
    with refused(r"give an instance, Nowhere\(...\), not the class"):
        stream.sink(nowhere)


def test_process_methods_are_checked(stream):
    with refused(r"Wrong.process\(record\) is called with the record and the context"):
        stream.process(Wrong())
    with refused("process_right is a coroutine function"):
        stream.connect(stream).key_by("n", "n").process(Asynchronous())


def test_an_object_that_works_for_two_operators_is_refused(stream, nowhere):
    shared, sink = Pass(), nowhere()
    stream.process(shared, uid="first").sink(sink, uid="out")
    with refused(r"process: Pass.*already works for process: Pass \(uid first\)"):
        stream.process(shared)
    with refused(r"already works for Nowhere \(uid out\)"):
        stream.sink(sink, uid="out2")


# Sources, sinks and side outputs


def test_ends_of_the_wrong_type_are_refused(env, stream):
    with refused("^source: expected Source, got 'in.csv'; write JsonlSource"):
        env.source("in.csv")
    with refused("^sink: expected Sink, got 'out'; write JsonlSink"):
        stream.sink("out")
    with refused(r"^sink: expected Sink, got 7$"):
        stream.sink(7)


def test_rows_in_place_of_a_source_are_not_shown_whole(env):
    with refused(r"expected Source, got \[0, 1, 2.{,200}\.\.\.; write CollectionSource"):
        env.source([*range(10**5)])


def test_what_an_end_finds_wrong_with_itself_names_the_operator(env, numbers, nowhere):
    source = numbers(problem=ConfigurationError("no such file"))
    env.source(source, uid="in").sink(nowhere())
    with refused(r"Numbers \(uid in\): no such file"):
        env.graph("job")


def test_a_sink_is_asked_whether_it_can_work(env, stream, nowhere):
    stream.sink(nowhere(problem=ConfigurationError("not writable")), uid="out")
    with refused(r"Nowhere \(uid out\): not writable"):
        env.graph("job")


def test_a_schema_that_cannot_be_told_names_the_source(env, numbers):
    class Broken(numbers):
        def schema(self):
            raise ConfigurationError("two files disagree")

    with refused(r"^Broken \(uid in\): two files disagree"):
        env.source(Broken(), uid="in")


@pytest.mark.parametrize(
    ("watermarks", "message"),
    [
        (Watermarks.monotonous(timestamp="tt"), "no column 'tt'; did you mean 't'"),
        (Watermarks.monotonous(timestamp="origin"), "'origin' is of type string"),
        (Watermarks.monotonous(timestamp=lambda: 1), "too many positional arguments"),
        ("5min", "expected Watermarks, got '5min'"),
    ],
)
def test_watermarks_that_cannot_be_read_are_refused(env, numbers, watermarks, message):
    with refused(rf"^Numbers \(uid in\).*{message}"):
        env.source(numbers(SCHEMA), uid="in", watermarks=watermarks)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan"), "10", True])
def test_a_speed_that_is_no_multiple_of_time_is_refused(env, numbers, speed):
    with refused("^Numbers.*speed"):
        env.source(numbers(), watermarks=Watermarks.monotonous(timestamp="t"), speed=speed)


def test_speed_without_watermarks_is_refused(env, numbers):
    with refused("speed .* needs watermarks"):
        env.source(numbers(), speed=10)


def test_side_outputs_that_never_get_a_record_are_refused(env, numbers, stream):
    with refused("this source sends nothing to the side output 'errors'"):
        stream.side_output("errors")
    with refused("a source has one side output, 'errors', and no 'late'"):
        env.source(numbers(side_errors=True), uid="in").side_output("late")
    with refused("^map: str .* has no side outputs"):
        stream.map(str).side_output("late")
    with refused("named by a string, not 3"):
        stream.process(Pass()).side_output(3)


def test_a_side_output_of_a_side_output_or_union_is_refused(stream):
    passed = stream.process(Pass(), uid="pass")
    with refused("is a side output"):
        passed.side_output("late").side_output("later")
    with refused("union .* has no side output"):
        passed.union(stream).side_output("late")


# Parallelism


@pytest.mark.parametrize("value", [0, -1, 129, 1.5, "2", True])
def test_a_parallelism_out_of_bounds_is_refused(env, numbers, stream, value):
    with refused(r"^map: str \(uid map-str\): parallelism"):
        stream.map(str, parallelism=value)
    with refused("^Numbers"):
        env.source(numbers(), uid="in", parallelism=value)


def test_forward_to_another_parallelism_is_refused(stream):
    with refused(r"^map: str .*forward\(\) .*Numbers \(uid numbers\) has 2 and .* has 3"):
        stream.forward().map(str, parallelism=3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"parallelism": 0},
        {"parallelism": "2"},
        {"max_parallelism": 0},
        {"max_parallelism": 32769},
        {"max_parallelism": 2.0},
        {"parallelism": 129},
        {"name": ""},
        {"name": 3},
    ],
)
def test_an_environment_that_cannot_work_is_refused(arguments):
    with pytest.raises(ConfigurationError):
        Environment(**arguments)


def test_the_highest_max_parallelism_is_accepted():
    Environment(parallelism=32768, max_parallelism=32768)


# Uids


def test_a_uid_used_twice_is_refused_naming_both(stream):
    stream.map(str, uid="u")
    with refused(r"^filter: bool: uid 'u' is taken by map: str \(uid u\)"):
        stream.filter(bool, uid="u")


def test_two_stateful_operators_of_one_name_need_uids(stream):
    keyed = stream.key_by("n")
    keyed.reduce(lambda a, b: a)
    with refused("^reduce: its state would go by the uid 'reduce', .*uid="):
        keyed.reduce(lambda a, b: b)
    keyed.reduce(lambda a, b: b, uid="other")


@pytest.mark.parametrize("uid", ["", "a b", "a/b", "../a", 3, "x" * 201])
def test_a_uid_that_cannot_be_stored_is_refused(stream, uid):
    with refused("^map: str: a uid is made of"):
        stream.map(str, uid=uid)


def test_odd_names_and_settings_are_refused(stream):
    with refused("^map: name must be a string"):
        stream.map(str, name=3)
    with refused("^map: str: chain is True or False"):
        stream.map(str, chain="no")


# The job as a whole


def test_a_job_without_source_is_refused():
    with refused("job empty has no source"):
        Environment().graph("empty")


def test_a_stream_without_sink_is_refused(env, stream, nowhere):
    stream.sink(nowhere())
    stream.map(str, uid="lost")
    with refused(r"map: str \(uid lost\): its output goes nowhere"):
        env.graph("job")


def test_a_side_output_asked_for_without_sink_is_refused(env, stream, nowhere):
    passed = stream.process(Pass(), uid="pass")
    passed.sink(nowhere())
    passed.side_output("late")
    with refused(r"process: Pass \(uid pass\): its side output 'late' goes nowhere"):
        env.graph("job")


def test_a_main_output_that_only_side_outputs_accompany_needs_a_sink(env, stream, nowhere):
    stream.process(Pass(), uid="pass").side_output("late").sink(nowhere())
    with refused(r"process: Pass \(uid pass\): its output goes nowhere"):
        env.graph("job")


def test_streams_of_two_environments_do_not_mix(env, numbers, stream):
    other = Environment().source(numbers(), uid="foreign")
    for combine in (stream.union, stream.connect, stream.key_by("n").connect):
        with refused(r"Numbers \(uid foreign\) belongs to another Environment"):
            combine(other)
    with refused("belongs to another Environment"):
        stream.key_by("n").connect(other.key_by("n"))


def test_only_streams_can_be_combined(stream):
    with refused("^union on Numbers .*expected Stream, got 3"):
        stream.union(3)
    with refused("^connect on Numbers .*expected Stream"):
        stream.connect([])


# Pickling


LOCK = threading.Lock()


class Service:
    def __init__(self):
        self.client = {"connection": threading.Lock()}

    def call(self, record):
        return record


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda lock: lambda r: (lock, r), "variable 'lock' captured by .*<lambda> is a lock"),
        (lambda lock: lambda r: (LOCK, r), "variable 'LOCK' captured by .*<lambda> is a lock"),
        (
            lambda lock: functools.cache(lambda r: lock),
            "variable 'lock' captured by .*<lambda> is a lock",
        ),
        (lambda lock: lambda r, held=lock: r, "a default argument of .*<lambda> is a lock"),
        (
            lambda lock: Service().call,
            "the value of 'connection' in client of Service in the object of method call is a lock",
        ),
    ],
    ids=["closure", "global", "cached", "default", "method"],
)
def test_a_function_that_cannot_reach_a_worker_is_refused_naming_the_culprit(
    env, stream, nowhere, make, message
):
    stream.map(make(threading.Lock()), uid="locked").sink(nowhere())
    with refused(rf"uid locked\) cannot be sent to a worker: {message}, .*cannot pickle"):
        env.graph("job")


def test_an_object_that_refuses_in_its_own_words_is_named(env, stream, nowhere):
    class Session:
        def __reduce__(self):
            raise RuntimeError("only valid on the driver")

    session = Session()
    stream.filter(lambda r: session, uid="asks").sink(nowhere())
    with refused(r"variable 'session' .* is a .*Session, .*only valid on the driver"):
        env.graph("job")


def test_a_recursive_function_that_captures_a_lock_is_blamed_on_the_lock(env, stream, nowhere):
    lock = threading.Lock()

    def again(record):
        return again(record) if lock else record

    stream.map(again, uid="again").sink(nowhere())
    with refused("variable 'lock' captured by .*again is a lock"):
        env.graph("job")


def test_key_and_partition_functions_are_sent_as_well(env, stream, nowhere):
    lock = threading.Lock()
    stream.key_by(lambda r: (lock, r)[1]).sink(nowhere(), uid="out")
    with refused(r"^Nowhere \(uid out\) cannot be sent to a worker: variable 'lock'"):
        env.graph("job")
