"""One run of the demo: a job over real flights, workers killed under way, and Spark's verdict."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import minirt as rt
from minirt_connectors.flights.audience import Audience
from minirt_connectors.flights.data import flights_dataframe
from minirt_connectors.flights.expected import KEYS, expected_hourly
from minirt_connectors.flights.hourly import RESULT_SCHEMA
from minirt_connectors.flights.job import INPUT_COLUMNS, build, flights_source
from minirt_connectors.flights.killer import Choice, Kill, Killer, any_worker
from minirt_connectors.flights.live import Figures, LiveFigures
from minirt_connectors.spark import SparkSource, Verdict, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES = ("aligned", "unaligned", "at_least_once")
PARALLELISM = 2

_QUEUE_BYTES = 16 * 1024
_RESULTS_PER_S = 10_000
"""At this pace, which is that of all flights, queues of so many bytes hold about a second of work. Aligned
barriers have to wait behind all of it, so queues of slower jobs are smaller."""
_QUEUE_BYTES_MIN = 1024
_LOOK_EVERY_S = 0.2
_CANCEL_S = 10.0
_RESTARTS_EACH = 2
"""The hosts of an executor that was killed may be lost one after the other."""
_SPARE_RESTARTS = 3
"""A limit for failures that the demo did not cause: it shows them, but they should not last for ever."""


@dataclass(frozen=True, slots=True)
class DemoInput:
    """What all runs share: the flights as a source, and what Spark says of them."""

    source: SparkSource
    expected: DataFrame
    rows: int
    results: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do in one run. `seconds` is how long its slow stage takes in all, without replays."""

    mode: str
    kills: int = 2
    seconds: float = 12.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ran to its end, before anybody has looked at its output."""

    mode: str
    kills: tuple[Kill, ...]
    kills_wanted: int
    result: rt.JobResult
    output: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        result = self.result
        executors = sum(kill.role == "executor" for kill in self.kills)
        killed = _counted(len(self.kills) - executors, "worker")
        if executors:
            killed += f" and {_counted(executors, 'executor')}"
        return (
            f"{result.duration_s:5.1f} s  {result.status.value}: {killed} killed, "
            f"{result.restarts} restarts, {result.completed_checkpoints} checkpoints"
        )


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The outcome of one run."""

    job: EndedJob
    rows_in: int
    verdict: Verdict
    left_running: int = 0
    """Processes of the job that lived on when it was over."""

    @property
    def passed(self) -> bool:
        """Whether nothing is lost or left, nothing duplicated or wrong, if the mode promises that, and all
        were killed that were to be."""
        return self._as_promised and not self.left_running and not self._spared

    @property
    def _as_promised(self) -> bool:
        return self.verdict.lost == 0 and (self.verdict.ok or self.job.mode == "at_least_once")

    @property
    def _spared(self) -> int:
        return self.job.kills_wanted - len(self.job.kills)

    @property
    def conclusion(self) -> str:
        """What the verdict means, in a sentence."""
        verdict, mode = self.verdict, self.job.mode
        if self.left_running:
            return f"{mode}: FAILED, processes of the job are left running: {self.left_running}."
        if not self._as_promised:
            return f"{mode}: FAILED, the output is not what this mode promises."
        if self._spared:
            return (
                f"{mode}: FAILED, the job was over after {len(self.job.kills)} of "
                f"{_counted(self.job.kills_wanted, 'kill')}: each waits for a checkpoint. "
                "Give it more --seconds, or fewer --kills."
            )
        if mode != "at_least_once":
            return f"{mode}: exactly once, nothing lost, duplicated or wrong."
        if verdict.ok:
            return (
                f"{mode}: nothing lost; and this time no restart fell where it shows in the output."
            )
        return (
            f"{mode}: nothing lost, but {verdict.duplicated:,} results came twice and "
            f"{verdict.unexpected:,} have wrong counts: what was processed between the barriers of two "
            "channels was processed again after a restart."
        )

    def to_plain(self) -> dict[str, Any]:
        """The figures of the run in terms of JSON."""
        return {
            "mode": self.job.mode,
            "kills": len(self.job.kills),
            "restarts": self.job.result.restarts,
            "checkpoints": self.job.result.completed_checkpoints,
            "rows_in": self.rows_in,
            "rows_out": self.verdict.rows_output,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "unexpected": self.verdict.unexpected,
            "left_running": self.left_running,
        }


def prepare(
    spark: SparkSession, folder: Path, rows: int | None = None, *, splits: int = 4
) -> DemoInput:
    """Have Spark write the flights (the first `rows` by time, if given) for the job, and count them."""
    from pyspark.sql import functions as F

    flights = flights_dataframe(spark).select(*INPUT_COLUMNS)
    if rows is not None:
        flights = flights.orderBy(*INPUT_COLUMNS).limit(rows)
    flights = flights.persist()
    source = flights_source(flights, splits=splits, cache_dir=str(folder))
    expected = expected_hourly(flights).persist()
    totals = expected.agg(F.sum("flights"), F.count("*")).first()
    assert totals is not None
    return DemoInput(source, expected, int(totals[0] or 0), int(totals[1]))


def run_job(
    demo: DemoInput,
    plan: Plan,
    root: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    show: Callable[[Figures], None] = lambda figures: None,
    on_kill: Callable[[Kill], None] = lambda kill: None,
    choose: Choice = any_worker,
    cluster: rt.HostCluster | None = None,
) -> EndedJob:
    """Run the job with output and checkpoints below `root`, a path or URL, and kill what `choose` says.

    Its workers run on this machine or on the hosts of a `cluster`. `show` gets the figures several times a
    second. Raises JobFailedError if the job fails for good.
    """
    output, options = f"{root}/output", dict(storage_options or {})
    env = rt.Environment("flights", parallelism=PARALLELISM)
    slow_s = plan.seconds * PARALLELISM / max(1, demo.results)
    sink = rt.ParquetSink(output, schema=RESULT_SCHEMA, storage_options=options)
    build(env, demo.source, sink, slow_s_per_result=slow_s)
    # A moment after the first checkpoint, but never when the job could long be over.
    killer = Killer(plan.kills, plan.seconds / 6, random.Random(plan.seed), on_kill, choose)
    live = LiveFigures(lambda: len(killer.kills))
    job = env.start(
        checkpointing=rt.Checkpointing(
            f"{root}/checkpoints", interval="1s", mode=plan.mode, storage_options=options
        ),
        restart=rt.Restart.fixed_delay(
            attempts=_RESTARTS_EACH * plan.kills + _SPARE_RESTARTS, delay="50ms"
        ),
        options=rt.Options(
            limits=queues_for(demo.results / plan.seconds if plan.seconds else None)
        ),
        observer=Audience(killer, live),
        cluster=cluster,
    )
    killer.start(job)
    try:
        result = _watch(job, lambda: show(live.figures()))
    finally:
        killer.stop()
    return EndedJob(plan.mode, tuple(killer.kills), plan.kills, result, output, options)


def verify_output(
    spark: SparkSession, demo: DemoInput, job: EndedJob, left_running: int = 0
) -> DemoRun:
    """Have Spark compare what the job has committed with what it must be."""
    verdict = verify(
        spark,
        job.output,
        demo.expected,
        keys=KEYS,
        examples=1,
        storage_options=job.storage_options,
    )
    return DemoRun(job, demo.rows, verdict, left_running)


def queues_for(results_per_s: float | None) -> rt.Limits:
    """Queues for a job of this pace; None where nothing slows it down."""
    share = 1.0 if results_per_s is None else min(1.0, results_per_s / _RESULTS_PER_S)
    queue = max(_QUEUE_BYTES_MIN, int(_QUEUE_BYTES * share))
    return rt.Limits(input_queue_bytes=queue, output_queue_bytes=queue // 2, frame_bytes=queue // 8)


def _watch(job: rt.Job, look: Callable[[], None]) -> rt.JobResult:
    """The result of the job. Whatever ends the watching ends the job, too."""
    try:
        while True:
            try:
                return job.wait(_LOOK_EVERY_S)
            except TimeoutError:
                look()
    except rt.MinirtError:  # The job is over.
        raise
    except BaseException:
        job.cancel()
        with contextlib.suppress(rt.MinirtError, TimeoutError):
            job.wait(_CANCEL_S)
        raise


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
