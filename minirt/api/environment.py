"""The environment: a job begins there, shows its plan there and is executed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from minirt.api import launch
from minirt.api.draft import Draft, Settings
from minirt.api.keywords import RunOptions, run_settings
from minirt.api.stream import Stream, added
from minirt.clusters import HostCluster
from minirt.config import DEFAULT_MAX_PARALLELISM, Checkpointing, Options
from minirt.errors import ConfigurationError
from minirt.generics import T
from minirt.graph.job_graph import JobGraph
from minirt.graph.plan import Plan
from minirt.graph.planner import build_execution_graph
from minirt.graph.validate import check_max_parallelism
from minirt.io.base import Source
from minirt.modes import find_mode
from minirt.notebook import facts
from minirt.operators.source import SourceSpec
from minirt.protocol.families import TakesLocalSnapshots
from minirt.protocol.restarts import RestartStrategy
from minirt.run_settings import RunSettings
from minirt.units import positive
from minirt.watermarks import Watermarks

if TYPE_CHECKING:
    from minirt.runtime.program.job import Job, JobResult


class Environment:
    """Collects the operators of a job. `parallelism` is the default of its operators.

    `max_parallelism` is the number of key groups: state can be spread over at most so many subtasks,
    and a job keeps the number for as long as its state lives. `name` is that of the job, unless it is
    given one when it is executed. `checkpointing`, `restart`, `options` and `cluster` hold for each run
    that is given no others. Raises ConfigurationError for values that cannot work.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        parallelism: int = 1,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        checkpointing: Checkpointing | None = None,
        restart: RestartStrategy | None = None,
        options: Options | None = None,
        cluster: HostCluster | None = None,
    ) -> None:
        parallelism = launch.parallelism_instead_of(parallelism)
        self._name = "job" if name is None else _checked_name(name)
        positive("Environment: parallelism", parallelism)
        check_max_parallelism(max_parallelism, "Environment")
        if parallelism > max_parallelism:
            raise ConfigurationError(
                f"Environment: parallelism {parallelism} is above max_parallelism {max_parallelism}"
            )
        options = Options() if options is None else options
        self._defaults = RunSettings(
            checkpointing, restart=restart, options=options, cluster=cluster
        )
        self._draft = Draft(parallelism, max_parallelism, options)

    def __repr__(self) -> str:
        count = len(self._draft)
        return f"<Environment {self._name!r} of {count} operator{'s' * (count != 1)}>"

    def _repr_html_(self) -> str:
        try:
            return self.plan()._repr_html_()
        except ConfigurationError as error:  # Most likely it is still being written.
            return facts(repr(self)[1:-1], {"cannot run yet": error})

    @property
    def name(self) -> str:
        """What the job is called unless it is given a name when it is executed."""
        return self._name

    @property
    def defaults(self) -> RunSettings:
        """The settings of runs that get no others."""
        return self._defaults

    def source(
        self,
        source: Source[T],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        watermarks: Watermarks | None = None,
        speed: float | None = None,
    ) -> Stream[T]:
        """The records of a source.

        `watermarks` tells their event time; `speed` replays them at that multiple of it (10 is ten
        times real time), otherwise as fast as possible.
        """
        spec, settings = SourceSpec(source, watermarks, speed), Settings(uid, name, parallelism)
        return added(self._draft, spec, settings)

    def graph(self, name: str | None = None) -> JobGraph:
        """The job as data, checked as a whole. Raises ConfigurationError, naming the operator."""
        return self._draft.graph(self._name if name is None else _checked_name(name))

    def plan(self, name: str | None = None, *, checkpointing: Checkpointing | None = None) -> Plan:
        """The execution graph in words: chains, parallelism and links.

        Of each link it says what becomes of the records that a barrier overtakes, at the same and at
        another parallelism. With `checkpointing` it names the mode, which must exist; if workers may come
        back alone in that mode, it says which, see `Restart`. It is a string; a notebook draws it.
        """
        graph = build_execution_graph(self.graph(name))
        if checkpointing is None:
            return Plan(graph)
        mode = find_mode(checkpointing.mode)
        return Plan(graph, mode.name, comebacks=isinstance(mode, TakesLocalSnapshots))

    def execute(
        self,
        job_name: str | None = None,
        *,
        runner: Literal["processes", "inline"] = "processes",
        **run: Unpack[RunOptions],
    ) -> JobResult:
        """Run the job to its end.

        The runner "inline" runs everything in the calling thread. `RunOptions` has all other keywords; what
        is left out is as the environment says.

        Raises ConfigurationError before anything is started, JobFailedError if the job fails for good.
        """
        launch.refuse_to_run()
        graph = self.graph(job_name)
        settings = run_settings(run, self._defaults)
        if runner not in ("processes", "inline"):
            raise ConfigurationError(f'runner must be "processes" or "inline", got {runner!r}')
        from minirt.runtime.program.execute import execute_job

        return execute_job(graph, settings, runner)

    def start(self, job_name: str | None = None, **run: Unpack[RunOptions]) -> Job:
        """As `execute`, but return at once: the job runs in worker processes meanwhile."""
        launch.refuse_to_run()
        graph = self.graph(job_name)
        settings = run_settings(run, self._defaults)
        from minirt.runtime.program.execute import start_job

        return start_job(graph, settings)


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"the name of a job is a string, not {name!r}")
    return name
