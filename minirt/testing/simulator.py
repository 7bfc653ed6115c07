"""Runs a whole job in one thread, with a schedule, a network, a storage and crashes drawn from a seed.

Theory of operation. A simulation takes one step after another; in each, one *actor* does one small
thing: a subtask works a slice, a channel delivers a frame or credit, a worker stores a snapshot or obeys
a message, the coordinator handles an event, a timer, or a storage command. All of them run the code
that runs in production: only schedule, clock, wires, storage and processes are simulated. Which actor
is next is drawn from the seed, so the same seed takes the same steps.

A storage command of the coordinator is one call. To let the world go on between any two of its
operations, steps are nested: an operation may first run further steps, in which the coordinator may
be killed or replaced while it is stuck in the middle of its command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from minirt import by_value
from minirt.api.environment import Environment
from minirt.config import Checkpointing, Options
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import JobGraph
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES, check_edges, find_mode
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.families import TakesLocalSnapshots
from minirt.protocol.restarts import Restart, RestartStrategy
from minirt.testing.clock import SimulatedClock
from minirt.testing.coordinator import SimulatedJob
from minirt.testing.faults import Chaos, Faults
from minirt.testing.options import at_pace, drawn_latency_interval, drawn_options
from minirt.testing.quiet import quiet
from minirt.testing.result import SimulationResult
from minirt.testing.schedule import Schedule
from minirt.testing.simulation import Simulation
from minirt.testing.user import Requests, SimulatedUser

_RESTARTS_MAX = 100
"""Far more than there are faults: a job that restarts so often will not recover."""

# In rounds: as many steps as give each subtask, worker and channel one turn on average.
_INTERVAL_ROUNDS = (0.3, 1, 4)
"""From checkpoint to checkpoint; a simulation draws one of them."""
_LOCAL_INTERVAL_ROUNDS = (5, 15, 40)
"""Where each subtask takes snapshots by itself: the coordinator handles one event in each of its turns, and
must hear of all snapshots."""


@quiet()
def simulate(
    job: Environment | JobGraph,
    *,
    seed: int,
    checkpointing: Checkpointing | None = None,
    faults: Faults | None = None,
    requests: Requests | None = None,
    origin: Mapping[str, bytes] | None = None,
    rescaled: Sequence[Environment | JobGraph] = (),
    options: Options | None = None,
    restart: RestartStrategy | None = None,
    steps_max: int = 60_000,
    on_checkpoint: Callable[[Mapping[str, bytes], str], None] | None = None,
    stop_at_problem: bool = False,
    trace: bool = False,
    checkpoints_max: int | None = None,
    may_refuse: Callable[[Exception | None], bool] = lambda error: False,
) -> SimulationResult:
    """Run a job that ends by itself, with whatever the seed does to it; always returns.

    Use it on your own job and your own checkpoint mode: `checkpointing.mode` may be a mode object. Of
    `checkpointing` everything counts but the storage, which is in memory. Time is simulated and its
    steps follow the checkpoint interval. Records are emitted to a `TransactionalSink`, or to any sink
    whose output survives the process.

        for seed in range(1000):
            sink = TransactionalSink()
            result = simulate(my_job(sink), seed=seed).check()
            assert sorted(sink.rows) == expected

    `rescaled` are further forms of the same job, with the same uids and sinks, at another parallelism:
    when the coordinator is replaced, the seed draws which one goes on. `requests` are the savepoints
    that are asked for meanwhile; `origin` is one of an earlier simulation, to start from. `options` are
    drawn from the seed unless given: small queues and frames, so that there is backpressure, and
    latency markers. `on_checkpoint` is called with all stored objects and the path of each manifest
    once it was created. A job that has not finished after `steps_max` steps has made no progress, which
    is a problem like any other. `stop_at_problem` ends the simulation, and so its trace, with the first
    problem. `checkpoints_max` ends it once so many are complete, also for a job that does not end. With
    `trace`, the result holds what each checkpoint did, event by event. `may_refuse` is given the error
    of a job that failed: if it returns True, this form may fail so, and another one is started. Raises
    ConfigurationError for a job that the mode cannot take checkpoints of.
    """
    checkpointing = checkpointing or Checkpointing("simulated://", interval="20ms")
    random = Random(seed)
    restart = restart or Restart.fixed_delay(_RESTARTS_MAX, checkpointing.interval_s / 4)
    graphs = [build_execution_graph(_job_graph(form)) for form in (job, *rescaled)]
    mode = find_mode(checkpointing.mode, max_concurrent=checkpointing.max_concurrent)
    round_s = checkpointing.interval_s / random.choice(_interval_rounds(mode))
    options = _paced(options or _drawn(random, seed, round_s), round_s, graphs)
    options = replace(options, trace=trace or options.trace)
    forms = [
        SimulatedJob(graph, by_value.dumps(graph), checkpointing, restart, options)
        for graph in graphs
    ]
    round_steps = max(_turns(graph) for graph in graphs)
    schedule = Schedule(random, SimulatedClock(random, round_s / round_steps), steps_max)
    chaos = Chaos(faults or Faults(), random, round_steps)
    for graph in graphs:
        check_edges(mode, graph.topology)
    user = SimulatedUser(requests or Requests(), MODES, mode, schedule, round_steps)
    simulation = Simulation(forms, seed, schedule, chaos, user, stop_at_problem=stop_at_problem)
    simulation.may_refuse = may_refuse
    simulation.checkpoints_max = checkpoints_max
    if origin is not None:
        simulation.start_from(origin)
    if on_checkpoint is not None:
        simulation.watch(on_checkpoint)
    for sink in simulation.sinks.values():
        sink.clear()
    return simulation.run()


def _interval_rounds(mode: CheckpointMode) -> Sequence[float]:
    return _LOCAL_INTERVAL_ROUNDS if isinstance(mode, TakesLocalSnapshots) else _INTERVAL_ROUNDS


def _paced(options: Options, round_s: float, graphs: Iterable[ExecutionGraph]) -> Options:
    return at_pace(options, round_s, max(map(_subtasks, graphs)))


def _drawn(random: Random, seed: int, round_s: float) -> Options:
    """Markers are drawn apart, so that without them a seed draws what it always drew."""
    interval_s = drawn_latency_interval(Random(f"markers {seed}"), round_s)
    return replace(drawn_options(random, round_s), latency_interval=interval_s)


def _job_graph(job: Environment | JobGraph) -> JobGraph:
    return job.graph() if isinstance(job, Environment) else job


def _turns(graph: ExecutionGraph) -> int:
    """How many subtasks, workers and channels take turns."""
    return 2 * _subtasks(graph) + sum(1 for link in graph.links for _ in link.channels())


def _subtasks(graph: ExecutionGraph) -> int:
    return sum(vertex.parallelism for vertex in graph.vertices)
