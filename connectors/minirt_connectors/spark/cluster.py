"""A launcher: the tasks of a Spark job are the hosts of a minirt job."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from minirt import ConfigurationError, HostCluster, Invitation, Reactive
from minirt.units import Duration, positive
from minirt_connectors.host_process import (
    Agent,
    QuickFailures,
    in_one_line,
    refuse_too_few,
    run_host,
)
from minirt_connectors.spark.cores import hold, release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENCRYPTS = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.enabled")
_PAUSE_S = 1.0
_END_S_MAX = 5.0
"""How long tasks may take to notice that the job is over, before Spark is told to cancel them."""
_CANCEL_S_MAX = 15.0
_TELLING = ("cancelled", "exit code")


class SparkCluster(HostCluster):
    """The executors of a Spark session: `slots` slots, as tasks that last as long as the job.

    Each task has as many slots as `spark.task.cpus`. Spark starts lost tasks again; minirt submits the
    Spark job again when Spark gives it up. Who cancels it, or its group, ends the minirt job, and the
    reverse.
    Its tasks keep their cores for as long as the job lasts: a streaming `SparkSource` of the same session
    needs one more, and is refused where Spark has none.
    The coordinator listens at `spark.driver.host` unless `listen` says otherwise. minirt and the modules of
    the job must be installed on the executors.

    The credentials travel with the tasks, so they are encrypted if Spark's own network is; with
    `credentials`, a file that executors can read, they do not. Raises ConfigurationError for a session or
    options that cannot work.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        slots: int,
        listen: str | None = None,
        credentials: str | os.PathLike[str] | None = None,
        wait: Duration = "2min",
        min_slots: int | None = None,
        tls: bool = True,
        reactive: Reactive | None = None,
        compression: Literal["lz4"] | None = None,
    ) -> None:
        positive("SparkCluster: slots", slots)
        self._context = _context_of(spark)
        conf = self._context.getConf()
        if conf.get("spark.speculation", "false") == "true":
            raise ConfigurationError(
                "SparkCluster: spark.speculation starts second copies of tasks that last long, as these "
                "do; set it to false"
            )
        encrypted = [key for key in _ENCRYPTS if conf.get(key, "false") == "true"]
        if encrypted and not tls:
            raise ConfigurationError(
                f"SparkCluster: tls=False is refused where {encrypted[0]} is true"
            )
        self._slots_each = int(conf.get("spark.task.cpus", "1"))
        self._tasks = -(-slots // self._slots_each)
        super().__init__(
            listen or f"{conf.get('spark.driver.host')}:0",
            credentials,
            wait,
            min_slots,
            tls,
            reactive,
            compression,
        )

    def launch(self, invitation: Invitation) -> SparkTasks:
        refuse_too_few(self, self._tasks * self._slots_each, invitation)
        cores = self._tasks * self._slots_each
        hold(self._context, cores)
        try:
            agent = Agent.invited(invitation, self._slots_each, self.credentials, super().launch)
            let_go = partial(release, self._context, cores)
            return SparkTasks(self._context, invitation.job, self._tasks, agent, let_go)
        except BaseException:
            release(self._context, cores)
            raise


class SparkTasks:
    """A Spark job, in a thread and a job group of its own, which is submitted until the job is over."""

    def __init__(
        self, context: Any, job: str, tasks: int, agent: Agent, let_go: Callable[[], None]
    ) -> None:
        from pyspark import InheritableThread

        self._context = context
        self._tasks = tasks
        self._serve = partial(serve_as_host, agent.command, agent.secret)
        self._close, self._let_go = agent.close, let_go
        self._what = f"minirt job {job}"
        self._group = f"minirt-{uuid.uuid4().hex}"
        self._over = False
        self._failure: str | None = None
        self.how = (
            f"Spark runs {tasks} tasks for it in job group {self._group}: look there for what fails"
        )
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def failure(self) -> str | None:
        return self._failure

    def close(self) -> None:
        self._over = True
        self._thread.join(_END_S_MAX)
        if self._thread.is_alive():
            with contextlib.suppress(Exception):  # The session may have been stopped.
                self._context.cancelJobGroup(self._group)
            self._thread.join(_CANCEL_S_MAX)
        let_go, self._let_go = self._let_go, lambda: None
        let_go()
        self._close()

    def _run(self) -> None:
        try:
            self._submit_again_and_again()
        except BaseException as error:
            self._failure = f"Spark runs no tasks for it: {in_one_line(error, _TELLING)}"

    def _submit_again_and_again(self) -> None:
        failures = QuickFailures()
        while not self._over:
            began_at = time.monotonic()
            try:
                self._context.setJobGroup(self._group, self._what, interruptOnCancel=True)
                numbers = self._context.parallelize(range(self._tasks), self._tasks)
                numbers.mapPartitions(self._serve).count()
            except Exception as error:
                if self._over:
                    return
                cancelled = "cancelled" in in_one_line(error, _TELLING)
                if failures.too_many(began_at) or cancelled:
                    raise
            time.sleep(_PAUSE_S)


def serve_as_host(
    command: list[str], secret: dict[str, str], partition: Iterator[int]
) -> Iterator[int]:
    """In a task: run an agent until its job is over. No process of it outlives the task."""
    for number in partition:
        run_host(command, secret)
        yield number


def _context_of(spark: SparkSession) -> Any:
    """Raises ConfigurationError unless the program is Spark's driver."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "SparkCluster needs a program that is Spark's driver, and a session of Spark Connect is "
            "not; submit the program to the cluster, or start agents yourself for a HostCluster"
        )
    return spark.sparkContext
