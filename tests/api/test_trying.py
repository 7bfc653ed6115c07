"""Streams that are tried: printed, collected, previewed; and what notebooks show of a job."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import minirt as rt
from minirt.api.launch import loading


@pytest.fixture
def env():
    return rt.Environment("tried", parallelism=2)


@pytest.fixture
def numbers(env):
    return env.source(rt.SequenceSource(10, splits=1), uid="numbers")


def test_collect_gives_all_records_and_preview_the_first_ones(numbers):
    tens = numbers.map(lambda n: n * 10)
    assert sorted(tens.collect()) == list(range(0, 100, 10))
    assert len(tens.preview(3)) == 3
    assert len(tens.preview()) == 10
    assert len(tens.preview(99)) == 10


def test_a_keyed_stream_and_what_is_behind_it_can_be_looked_at(numbers):
    keyed = numbers.key_by(lambda n: n % 2)
    assert sorted(keyed.collect()) == list(range(10))
    assert sorted(keyed.reduce(max).collect()) == list(range(10))
    assert sorted(numbers.union(numbers).collect()) == sorted([*range(10), *range(10)])


def test_columns_come_as_dicts(env):
    table = pa.table({"shop": ["a", "b"], "n": [1, 2]})
    orders = env.source(rt.CollectionSource(table), uid="orders")
    assert orders.preview(1) == [{"shop": "a", "n": 1}]


def test_an_endless_source_can_be_previewed_but_not_collected(env):
    endless = env.source(rt.SequenceSource.endless(), uid="numbers")
    assert len(endless.map(lambda n: n).preview(5)) == 5
    with pytest.raises(
        rt.ConfigurationError, match=r"\(uid numbers\) never ends; use preview\(n\)"
    ):
        endless.collect()


def test_an_error_in_a_function_is_told_as_by_execute(numbers):
    with pytest.raises(rt.JobFailedError, match="operator invert failed on record 0"):
        numbers.map(lambda n: 1 // n, name="invert").collect()


@pytest.mark.parametrize("n", [0, -1, 2.5, "3"])
def test_a_number_of_records_that_cannot_be_is_refused(numbers, n):
    with pytest.raises(rt.ConfigurationError, match="n must be"):
        numbers.preview(n)


def test_sinks_of_the_job_hear_nothing_of_a_try(env, numbers):
    kept = rt.CollectSink()
    numbers.sink(kept)
    assert len(numbers.collect()) == 10
    assert kept.rows == []
    env.execute(runner="inline")
    assert len(kept.rows) == 10


def test_a_stream_that_was_only_tried_is_no_part_of_the_job(env, numbers):
    numbers.map(lambda n: n * 2).preview(1)
    numbers.sink(rt.DiscardSink())
    assert list(env.graph().operators) == ["numbers", "discard-sink"]


def test_a_stream_that_was_tried_and_goes_on_is_part_of_the_job(env, numbers):
    doubled = numbers.map(lambda n: n * 2, uid="doubled")
    doubled.preview(1)
    doubled.map(str, uid="text").sink(rt.DiscardSink())
    assert {"numbers", "doubled", "text"} < set(env.graph().operators)


def test_a_stream_that_was_not_tried_must_still_lead_somewhere(env, numbers):
    tried = numbers.map(lambda n: n * 2, name="tried")
    tried.preview(1)
    tried.map(str, name="forgotten")
    numbers.sink(rt.DiscardSink())
    with pytest.raises(rt.ConfigurationError, match=r"forgotten.*its output goes nowhere"):
        env.graph()


class Sides(rt.Process):
    def process(self, record, ctx):
        if record % 2:
            ctx.side("odd", record)
        else:
            yield record


def test_a_side_output_can_be_looked_at_and_need_not_lead_further(env, numbers):
    even = numbers.process(Sides(), uid="sides")
    assert sorted(even.side_output("odd").collect()) == [1, 3, 5, 7, 9]
    assert sorted(even.collect()) == [0, 2, 4, 6, 8]
    even.sink(rt.DiscardSink())
    assert list(env.graph().operators) == ["numbers", "sides", "discard-sink"]


def test_a_file_that_a_launcher_loads_tries_nothing():
    with loading(None), pytest.raises(rt.ConfigurationError, match="while it is loaded"):
        rt.Environment().source(rt.SequenceSource(3)).preview()


def test_options_that_only_processes_can_have_do_not_stand_in_the_way():
    options = rt.Options(metrics_port=0, control="127.0.0.1:0", allow_pickle=True)
    env = rt.Environment(options=options)
    found = env.source(rt.SequenceSource(1)).map(complex).collect()
    assert found == [0j]


def test_tries_may_be_made_in_several_threads():
    def look():
        env = rt.Environment()
        found.append(env.source(rt.SequenceSource(50)).map(lambda n: n + 1).preview(20))

    found: list[list[int]] = []
    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [sorted(rows) for rows in found] == [list(range(1, 21))] * 3


def test_print_ends_a_stream_as_a_print_sink_does(env, numbers, capsys):
    numbers.print("> ", 2, uid="shown", parallelism=1)
    env.execute(runner="inline")
    assert capsys.readouterr().out == "> 0\n> 1\n"


def test_a_notebook_shows_the_graph_of_an_environment(env, numbers):
    assert "cannot run yet" in env._repr_html_()
    numbers.map(str, name="<to text>").key_by(len).reduce(max).print()
    assert repr(env) == "<Environment 'tried' of 4 operators>"
    shown = env._repr_html_()
    assert shown == env.plan()._repr_html_()
    assert "<svg" in shown
    assert "&lt;to text&gt;" in shown
    assert "<to text>" not in shown
    assert str(env.plan()).startswith("job tried: ")


def test_a_notebook_shows_the_columns_of_a_stream(env):
    stream = env.source(rt.CollectionSource(pa.table({"shop": ["a"]})), uid="orders")
    assert "shop" in stream._repr_html_()
    assert ".preview()" in stream.map(str)._repr_html_()


def test_a_notebook_shows_no_table_where_there_is_nothing_to_list(tmp_path, env):
    stream = env.source(rt.SequenceSource(1)).map(str)
    empty = rt.open_checkpoints(tmp_path)
    assert f"no checkpoints in {empty.root}" in empty._repr_html_()
    for shown in (stream._repr_html_(), empty._repr_html_()):
        assert "<b>" in shown
        assert "<table" not in shown


def test_a_notebook_shows_results_and_checkpoints(tmp_path, env, numbers):
    numbers.key_by(lambda n: n % 2).reduce(max, uid="largest").sink(rt.DiscardSink())
    result = env.execute(checkpointing=rt.Checkpointing(tmp_path), runner="inline")
    assert "finished" in result._repr_html_()
    assert "newest checkpoints" in result._repr_html_()
    assert "completed in" in result.checkpoints[-1]._repr_html_()
    found = rt.open_checkpoints(tmp_path)
    assert str(tmp_path) in repr(found)
    assert "kept" in found._repr_html_()
    assert "largest" in found.latest()._repr_html_()
