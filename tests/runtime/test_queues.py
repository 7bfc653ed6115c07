"""Queues of single operators: both ends of their channels have the sizes, all others those of the job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import minirt as rt
from minirt import ConfigurationError, Limits, Options, Queues
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.operators.map_async import QUEUE_S
from minirt.protocol.ids import SubtaskId
from minirt.runtime.channels.channels import RowRoom
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.cluster.local import LocalPorts
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.assembly import Assembled, assemble
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.testing.clock import HeldClock

LIMITS = Limits(input_queue_bytes=4000, output_queue_bytes=2000)


def job(sink: rt.Sink) -> rt.Environment:
    env = rt.Environment()
    numbers = env.source(rt.SequenceSource(100), uid="numbers").rebalance()
    slow = numbers.map(lambda n: n, uid="slow").map(lambda n: n, uid="chained")
    slow.rebalance().sink(sink, uid="out")
    return env


async def answer(number: int) -> int:
    return number


def asking(sink: rt.Sink) -> rt.Environment:
    """Its requests are sent behind the first operator of their chain."""
    env = rt.Environment()
    numbers = env.source(rt.SequenceSource(100), uid="numbers").rebalance()
    asked = numbers.map(lambda n: n, uid="slow").map_async(answer, uid="asked")
    asked.rebalance().sink(sink, uid="out")
    return env


def subtasks(options: Options, job: Callable[[rt.Sink], rt.Environment] = job) -> list[Assembled]:
    graph = build_execution_graph(job(rt.DiscardSink()).graph())
    package = JobPackage(cloudpickle.dumps(graph), options, MODES, None)
    ports = LocalPorts(HeldClock(), lambda upload: None, lambda subtask: None)
    pacer = TimedPacer(1.0)
    return [
        assemble(package, Deployment(1), SubtaskId(vertex, 0), ports, pacer, lambda channel: None)
        for vertex in range(3)
    ]


def sizes(
    options: Options, job: Callable[[rt.Sink], rt.Environment] = job
) -> list[tuple[int, int, bool]]:
    """Of both channels, in turn: what the sender and the receiver may hold, and whether it is debloated."""
    source, slow, out = subtasks(options, job)
    found = []
    for sender, receiver in ((source, slow), (slow, out)):
        (output,) = sender.outputs.values()
        ((_, input),) = receiver.inputs.values()
        debloated = input.debloater is not None
        assert debloated == (output.share < 1)
        largest = input.debloater._bytes_max if input.debloater else input.window_bytes
        assert output._window_bytes_max == largest
        assert output.rows.window_bytes == input._row_window_bytes
        found.append((output.queue_bytes_max, largest, debloated))
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(2000, 4000, False), (2000, 4000, False)]),
        (
            {"queues": {"slow": Queues(input_bytes=1000)}},
            [(2000, 1000, False), (2000, 4000, False)],
        ),
        ({"queues": {"out": Queues(output_bytes=900)}}, [(2000, 4000, False), (900, 4000, False)]),
        ({"queues": {"slow": Queues(debloat="1s")}}, [(2000, 4000, True), (2000, 4000, False)]),
        (
            {"debloat": "1s", "queues": {"slow": Queues(500, 600, "off")}},
            [(600, 500, False), (2000, 4000, True)],
        ),
    ],
)
def test_both_ends_have_the_sizes_of_the_operator_that_reads(
    options: dict[str, Any], expected: list[tuple[int, int, bool]]
) -> None:
    assert sizes(Options(limits=LIMITS, **options)) == expected


@pytest.mark.parametrize(
    ("options", "debloated"),
    [
        ({}, [True, False]),
        ({"queues": {"slow": Queues(debloat="off")}}, [False, False]),
        ({"queues": {"slow": Queues(input_bytes=1000)}}, [True, False]),
        ({"debloat": "1s"}, [True, True]),
    ],
)
def test_queues_before_requests_are_debloated_unless_told_otherwise(
    options: dict[str, Any], debloated: list[bool]
) -> None:
    assert [each for _, _, each in sizes(Options(**options), asking)] == debloated


@pytest.mark.parametrize(
    ("options", "target_s"),
    [
        (Options(), QUEUE_S),
        (Options(debloat="10ms"), 0.01),
        (Options(debloat="1s"), QUEUE_S),
        (Options(queues={"slow": Queues(debloat="1s")}), 1.0),
    ],
)
def test_the_shorter_target_counts_unless_the_queues_have_one(
    options: Options, target_s: float
) -> None:
    assert options.of_channels_into("slow", QUEUE_S)[1] == target_s


def test_sizes_for_an_operator_hold_for_rows_as_they_hold_for_columns() -> None:
    _, slow, out = subtasks(
        Options(queues={"out": Queues(input_bytes=1 << 20, output_bytes=1 << 19)})
    )
    (output,) = slow.outputs.values()
    assert output.rows == RowRoom(1 << 19, 1 << 20)
    ((_, input),) = out.inputs.values()
    input.put(Frame(Kind.ROWS, b"rows"))
    assert input.room_bytes == 1 << 20


@pytest.mark.parametrize("queues", [Queues(50, 20), Queues(debloat="10ms")])
def test_a_job_with_queues_of_its_own_gives_the_same_results(queues: Queues) -> None:
    sink = rt.CollectSink()
    job(sink).execute(runner="inline", options=Options(queues={"slow": queues}))
    assert sorted(sink.rows) == list(range(100))


@pytest.mark.parametrize(
    ("uid", "message"),
    [
        ("slov", "no operator with uid 'slov'; did you mean 'slow'"),
        ("numbers", "queues of numbers have no effect"),
        ("chained", "chain=False"),
    ],
)
def test_queues_that_are_not_there_are_refused(uid: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        job(rt.DiscardSink()).execute(
            runner="inline", options=Options(queues={uid: Queues(input_bytes=1000)})
        )


def test_to_leave_queues_alone_is_refused_where_nobody_touches_them() -> None:
    off = Options(queues={"slow": Queues(debloat="off")})
    with pytest.raises(ConfigurationError, match='queues of slow: debloat="off" has no effect'):
        job(rt.DiscardSink()).execute(runner="inline", options=off)
    asking(rt.DiscardSink()).execute(runner="inline", options=off)


@pytest.mark.parametrize("own", ["source", "reader", "neither", "both"])
def test_queues_that_only_this_parallelism_takes_away_are_said(
    own: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever rescales a job to the parallelism of a neighbour has not written a wrong option."""

    def run(parallelism: int) -> str:
        env = rt.Environment("grown", parallelism=parallelism)
        stated = {"source": own in ("source", "both"), "reader": own in ("reader", "both")}
        numbers = env.source(rt.SequenceSource(9), parallelism=1 if stated["source"] else None)
        slow = numbers.map(lambda n: n, uid="slow", parallelism=1 if stated["reader"] else None)
        slow.sink(rt.DiscardSink())
        caplog.clear()
        env.execute(runner="inline", options=Options(queues={"slow": Queues(input_bytes=1000)}))
        return caplog.text

    if own in ("neither", "both"):
        with pytest.raises(ConfigurationError, match="have no effect"):
            run(1)
        return
    assert not run(2)
    assert "queues of slow have no effect at this parallelism" in run(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Queues(), "has no effect"),
        (lambda: Queues(input_bytes=0), "input_bytes must be a whole number above 0"),
        (lambda: Queues(output_bytes=-1), "output_bytes must be a whole number above 0"),
        (lambda: Queues(debloat=0), "debloat must be positive"),
        (lambda: Queues(debloat="soon"), "cannot read 'soon'"),
        (lambda: Options(queues={"slow": 7}), "queues are Queues by uid"),  # type: ignore[dict-item]
        (
            lambda: Options(queues={"slow": Queues(debloat=1)}, limits=Limits(debloat_samples=0)),
            "debloat_samples",
        ),
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_they_can_be_given_from_outside(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        '[options.queues.slow]\ninput_bytes = "1KiB"\n[options.queues.out]\ndebloat = "2s"\n'
    )
    options = rt.load_settings(
        file, environ={}, assignments=["options.queues.slow.output_bytes=512"]
    ).options
    assert options.queues == {"slow": Queues(1024, 512), "out": Queues(debloat="2s")}


@pytest.mark.parametrize("assignment", ["options.queues.slow=7", "options.queues.slow.bytes=7"])
def test_other_keys_are_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError, match=r"give options.queues.UID.FIELD"):
        rt.load_settings(environ={}, assignments=[assignment])
