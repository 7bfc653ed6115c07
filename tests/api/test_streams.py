"""What the methods of streams put into the job graph."""

from __future__ import annotations

import functools

import pytest

from minirt import ConfigurationError, KeyedCoProcess, KeyedProcess, Process, Watermarks
from minirt.graph.job_graph import Edge
from minirt.graph.keys import KeySelector
from minirt.operators.flat_map import CoFlatMapSpec
from minirt.operators.keyed_process import KeyedCoProcessSpec, KeyedProcessSpec
from minirt.operators.map import CoMapSpec
from minirt.operators.map_batches import MapBatchesSpec
from minirt.operators.process import ProcessSpec
from minirt.operators.reduce import ReduceSpec
from minirt.partitionings import Broadcast, Custom, Forward, Hash, Rebalance, Rescale


class Pass(Process):
    def process(self, record, ctx):
        return [record]


class Count(KeyedProcess):
    def process(self, record, ctx):
        yield record


class Pair(KeyedCoProcess):
    def process_left(self, record, ctx):
        yield record

    def process_right(self, record, ctx):
        yield record


def edges(env):
    return [(e.source, e.target, e.partitioning) for e in env.graph("job").edges]


def test_operators_come_in_the_order_of_the_calls(env, stream, nowhere):
    stream.map(str).filter(bool).flat_map(list).sink(nowhere())
    assert list(env.graph("job").operators) == [
        "numbers",
        "map-str",
        "filter-bool",
        "flat_map-list",
        "nowhere",
    ]


def test_a_stream_read_twice_feeds_both_consumers(env, stream, nowhere):
    stream.sink(nowhere(), uid="a")
    stream.sink(nowhere(), uid="b")
    assert edges(env) == [("numbers", "a", Forward()), ("numbers", "b", Forward())]


def test_an_edge_is_forward_between_equal_parallelism_and_rebalance_otherwise(env, stream, nowhere):
    stream.map(str, uid="a").map(str, uid="b", parallelism=3).sink(nowhere(), uid="c")
    assert edges(env) == [
        ("numbers", "a", Forward()),
        ("a", "b", Rebalance()),
        ("b", "c", Rebalance()),
    ]


@pytest.mark.parametrize(
    ("method", "partitioning"),
    [
        ("rebalance", Rebalance()),
        ("rescale", Rescale()),
        ("broadcast", Broadcast()),
        ("forward", Forward()),
    ],
)
def test_a_partitioning_holds_for_the_next_edge_only(env, stream, nowhere, method, partitioning):
    getattr(stream, method)().map(str, uid="a").sink(nowhere(), uid="b")
    assert edges(env) == [("numbers", "a", partitioning), ("a", "b", Forward())]


def test_a_partitioning_leaves_the_stream_it_is_called_on_alone(env, stream, nowhere):
    stream.broadcast()
    stream.sink(nowhere(), uid="a")
    assert edges(env) == [("numbers", "a", Forward())]


def test_a_custom_partitioner_gets_its_key_by_column_or_function(env, stream, nowhere):
    def first(key, parallelism):
        return 0

    stream.partition_custom(first, "n").sink(nowhere(), uid="a")
    stream.partition_custom(first, ["n", "m"]).sink(nowhere(), uid="b")
    stream.partition_custom(first, str).sink(nowhere(), uid="c")
    assert edges(env) == [
        ("numbers", "a", Custom(first, KeySelector(("n",)))),
        ("numbers", "b", Custom(first, KeySelector(("n", "m")))),
        ("numbers", "c", Custom(first, KeySelector(function=str))),
    ]


def test_a_custom_partitioner_is_taken_to_be_pure_unless_declared_otherwise(env, stream, nowhere):
    stream.partition_custom(max, "n").sink(nowhere(), uid="a")
    stream.partition_custom(max, "n", pure=False).sink(nowhere(), uid="b")
    assert [partitioning.pure for _, _, partitioning in edges(env)] == [True, False]


def test_a_keyed_stream_feeds_every_operator_by_key(env, stream, nowhere):
    keyed = stream.key_by("n", "m")
    keyed.map(str, uid="mapped").sink(nowhere(), uid="a")
    keyed.process(Pass(), uid="passed").sink(nowhere(), uid="b")
    key = KeySelector(("n", "m"))
    assert ("numbers", "mapped", Hash(key)) in edges(env)
    assert ("numbers", "passed", Hash(key)) in edges(env)
    assert isinstance(env.graph("job").operators["passed"].spec, ProcessSpec)


def test_keyed_operators_hold_the_key_of_their_input_edge(env, stream, nowhere):
    add = max
    counter = Count()
    keyed = stream.key_by(str)
    keyed.reduce(add, uid="reduced").sink(nowhere(), uid="a")
    keyed.process(counter, uid="counted").sink(nowhere(), uid="b")
    key = KeySelector(function=str)
    operators = env.graph("job").operators
    assert operators["reduced"].spec == ReduceSpec(add)
    assert operators["counted"].spec == KeyedProcessSpec(counter)
    assert operators["reduced"].keys == operators["counted"].keys == (key,)
    assert ("numbers", "counted", Hash(key)) in edges(env)


def test_union_leads_all_streams_into_one_input(env, numbers, stream, nowhere):
    other = env.source(numbers(), uid="more", parallelism=1)
    stream.union(other.rescale(), other).sink(nowhere(), uid="out")
    assert env.graph("job").edges == (
        Edge("numbers", "out", Forward(), 0),
        Edge("more", "out", Rescale(), 0),
        Edge("more", "out", Rebalance(), 0),
    )


def test_a_stream_united_with_itself_is_two_edges(env, stream, nowhere):
    stream.union(stream).sink(nowhere(), uid="out")
    assert edges(env) == [("numbers", "out", Forward())] * 2


def test_a_union_of_keyed_streams_is_plain_and_dealt_by_their_keys(env, stream, nowhere):
    union = stream.key_by("n").union(stream.key_by("m"))
    assert not hasattr(union, "reduce")
    union.map(str, uid="mapped").sink(nowhere())
    keys = [Hash(KeySelector((column,))) for column in ("n", "m")]
    assert edges(env)[:2] == [("numbers", "mapped", key) for key in keys]


def test_connected_streams_enter_by_different_inputs(env, numbers, stream, nowhere):
    other = env.source(numbers(), uid="other")
    stream.connect(other.broadcast()).map(str, repr, uid="co").sink(nowhere(), uid="out")
    graph = env.graph("job")
    assert graph.operators["co"].spec == CoMapSpec(str, repr)
    assert graph.edges[:2] == (
        Edge("numbers", "co", Forward(), 0),
        Edge("other", "co", Broadcast(), 1),
    )


def test_a_connected_flat_map_may_use_generators(env, stream, nowhere):
    def twice(record):
        yield record
        yield record

    stream.connect(stream).flat_map(twice, twice, uid="co").sink(nowhere())
    assert env.graph("job").operators["co"].spec == CoFlatMapSpec(twice, twice)


@pytest.mark.parametrize("way", ["key each, then connect", "connect, then key both"])
def test_streams_keyed_alike_share_a_process_function(env, numbers, stream, nowhere, way):
    other = env.source(numbers(), uid="other")
    if way == "key each, then connect":
        connected = stream.key_by("n").connect(other.key_by(str))
    else:
        connected = stream.connect(other).key_by("n", str)
    pair = Pair()
    connected.process(pair, uid="pair").sink(nowhere())
    graph = env.graph("job")
    left, right = KeySelector(("n",)), KeySelector(function=str)
    assert graph.operators["pair"].spec == KeyedCoProcessSpec(pair)
    assert graph.operators["pair"].keys == (left, right)
    assert graph.edges[:2] == (
        Edge("numbers", "pair", Hash(left), 0),
        Edge("other", "pair", Hash(right), 1),
    )


def test_connected_streams_can_be_keyed_by_several_columns(env, stream, nowhere):
    stream.connect(stream).key_by(["a", "b"], ("c", "d")).process(Pair(), uid="p").sink(nowhere())
    left, right = env.graph("job").operators["p"].keys
    assert (left.columns, right.columns) == (("a", "b"), ("c", "d"))


def test_a_keyed_stream_connects_with_a_plain_one(env, stream, nowhere):
    stream.key_by("n").connect(stream.broadcast()).map(str, str, uid="co").sink(nowhere())
    assert edges(env)[:2] == [
        ("numbers", "co", Hash(KeySelector(("n",)))),
        ("numbers", "co", Broadcast()),
    ]


def test_a_side_output_is_an_edge_with_its_tag(env, stream, nowhere):
    passed = stream.process(Pass(), uid="pass")
    passed.sink(nowhere(), uid="main")
    passed.side_output("late").map(str, uid="mapped").sink(nowhere(), uid="late")
    tags = {e.target: e.tag for e in env.graph("job").edges}
    assert tags == {"pass": None, "main": None, "mapped": "late", "late": None}


def test_a_source_that_collects_errors_has_a_side_output_for_them(env, numbers, nowhere):
    source = env.source(numbers(side_errors=True), uid="in")
    source.sink(nowhere(), uid="good")
    source.side_output("errors").sink(nowhere(), uid="bad")
    assert Edge("in", "bad", Forward(), 0, "errors") in env.graph("job").edges


def test_settings_of_the_user_reach_the_operator(env, stream, nowhere):
    stream.map(str, uid="u", name="n", parallelism=3, chain=False).sink(nowhere())
    node = env.graph("job").operators["u"]
    assert (node.name, node.parallelism, node.max_parallelism, node.chain) == ("n", 3, 128, False)


def test_source_settings_reach_the_operator(env, numbers, nowhere):
    watermarks = Watermarks.bounded("1s", timestamp="t")
    env.source(numbers(), uid="in", parallelism=1, watermarks=watermarks, speed=2).sink(nowhere())
    node = env.graph("job").operators["in"]
    assert (node.parallelism, node.spec.watermarks, node.spec.speed) == (1, watermarks, 2)


def test_map_batches_keeps_its_format(env, stream, nowhere):
    stream.map_batches(sorted, "columns", uid="b").sink(nowhere())
    assert env.graph("job").operators["b"].spec == MapBatchesSpec(sorted, "columns")


class Scale:
    def __call__(self, record):
        return record


@pytest.mark.parametrize(
    ("function", "name", "uid"),
    [
        (len, "map: len", "map-len"),
        (lambda record: record, "map", "map"),
        (functools.partial(max, 1), "map: max", "map-max"),
        (Scale(), "map: Scale", "map-scale"),
        ("{}".format, "map: format", "map-format"),
    ],
)
def test_names_come_from_functions_and_uids_from_names(env, stream, nowhere, function, name, uid):
    stream.map(function).sink(nowhere())
    assert env.graph("job").operators[uid].name == name


def test_ends_and_process_functions_are_called_by_their_classes(env, numbers, nowhere):
    env.source(numbers()).key_by("n").process(Count()).sink(nowhere())
    names = {uid: node.name for uid, node in env.graph("job").operators.items()}
    assert names == {"numbers": "Numbers", "process-count": "process: Count", "nowhere": "Nowhere"}


def test_a_name_that_cannot_be_a_uid_leaves_the_kind(env, stream, nowhere):
    stream.map(str, name="数える").sink(nowhere())
    assert env.graph("job").operators["map"].name == "数える"


def test_stateless_operators_of_one_name_are_numbered(env, stream, nowhere):
    stream.map(lambda r: r).map(lambda r: r).map(lambda r: r).sink(nowhere())
    assert list(env.graph("job").operators)[1:4] == ["map", "map-2", "map-3"]


def test_an_explicit_uid_takes_precedence_over_one_made_up_before(env, stream, nowhere):
    first = stream.map(lambda r: r, name="first")
    other = stream.map(lambda r: r, name="map")
    assert other.uid == "map"
    other.filter(bool, uid="map").union(first).sink(nowhere())
    names = {uid: node.name for uid, node in env.graph("job").operators.items()}
    assert names["map"] == "filter: bool"
    assert names["map-2"] == "map"
    assert other.uid == "map-2"


def test_a_stream_tells_its_uid_and_a_union_has_none(stream):
    assert stream.key_by("n").uid == "numbers"
    with pytest.raises(ConfigurationError, match=r"the union of .* has no uid"):
        _ = stream.union(stream).uid
