"""A job made ready for one run: in a folder of its own, its sinks measured, its options laid over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minirt.api.environment import Environment
from minirt.config import Checkpointing, Options
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import JobGraph, OperatorNode
from minirt.graph.operator_spec import class_name
from minirt.graph.planner import build_execution_graph
from minirt.io.base import Sink
from minirt.io.simple_sinks import DiscardSink
from minirt.laboratory.matrix import Belongs, Setting
from minirt.laboratory.measured import SinkTreatment
from minirt.laboratory.sinks import MadeAt, MeasuredSink
from minirt.laboratory.workload import Place, Workload, parameter_names, with_parameters
from minirt.laboratory.workloads import find_workload
from minirt.modes import find_mode
from minirt.operators.sink import SinkSpec
from minirt.protocol.restarts import Restart
from minirt.run_settings import RunSettings
from minirt.settings.build import JobSettings, apply_settings, read_settings
from minirt.settings.catalogue import ABSENT, CATALOGUE, FREE_TABLES, STRATEGY, nearest

CHECKPOINTS_A_RUN = 10
"""A longer interval than this part of a run is shortened, or a run has hardly any checkpoint."""

MARKERS_EVERY = "10ms"
"""How often sources send latency markers where no field of a record says when it was made."""

INTERVAL_S = 1.0
"""For a job that has no checkpointing of its own."""

_INTERVAL = "checkpointing.interval"
_TAKEN = {
    "name": "runs are told apart by their folders",
    "restore": "each run starts from the beginning",
    "allow_non_restored_state": "each run starts from the beginning",
    "allow_restore_fallback": "each run starts from the beginning",
    "ignore_in_flight_data_of": "each run starts from the beginning",
    "give_up_output_of": "each run starts from the beginning",
    "parallelism": "give --parallelism",
    "checkpointing.mode": "give --modes",
    "checkpointing.storage": "each run has a folder of its own",
    "options.metrics_port": "figures are taken otherwise",
    "options.metrics_host": "figures are taken otherwise",
    "options.control": "runs follow each other, and nobody asks them for anything",
}
"""What a comparison sets itself, and what to say to those who set it too."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run to be made, as the program that makes it is told. `job` or `workload` says of what."""

    job: str | None
    workload: str | None
    setting: Setting
    seconds: float
    warm_up_s: float
    kill_every_s: float | None
    latency_from: str | None
    seed: int
    folder: str
    expected: str | None = None
    """Rows that the job, which ends by itself, must put out: a file or folder."""
    kill_at_s: tuple[float, ...] = ()
    """When to kill a worker, by the seconds since measuring began, in place of `kill_every_s`."""

    @property
    def kills(self) -> bool:
        return self.kill_every_s is not None or bool(self.kill_at_s)


@dataclass(frozen=True, slots=True)
class Trial:
    """What can be run."""

    graph: JobGraph
    settings: RunSettings
    place: Place
    workload: Workload | None
    sinks: tuple[MeasuredSink, ...]
    sink_vertices: tuple[int, ...]
    """Where each of them is."""
    treatments: tuple[SinkTreatment, ...]
    sources: frozenset[str]
    """The chains that read, by the uid of their first operator."""
    sink_chains: frozenset[str]
    """Those of the sinks that are measured, likewise."""
    notes: tuple[str, ...]
    """What else was done to the job."""
    files: tuple[Path, ...]
    """The folders of its sinks that write files, in place of their own."""


def resolve(key: str, workload: str | None) -> tuple[str, Belongs]:
    """The full key of what `--set` names: a parameter of the workload, an option, or the end of its key.

    Raises ConfigurationError for what does not exist, is not clear, or would have no effect.
    """
    parameters = () if workload is None else parameter_names(find_workload(workload))
    if key in parameters:
        return key, "parameter"
    if any(key.startswith(f"{table}.") for table in FREE_TABLES):
        return key, "option"
    ends = [known for known in CATALOGUE if known == key or known.rpartition(".")[2] == key]
    if key in ends:
        ends = [key]
    if len(ends) > 1:
        raise ConfigurationError(f"--set {key} may be {' or '.join(sorted(ends))}: give it in full")
    if not ends:
        known = [*parameters, *CATALOGUE]
        raise ConfigurationError(f"--set {key}: there is no such option{nearest(key, known)}")
    if ends[0] in _TAKEN:
        raise ConfigurationError(f"--set {key} has no effect here: {_TAKEN[ends[0]]}")
    return ends[0], "option"


def prepare(request: RunRequest) -> Trial:
    """Raises ConfigurationError, or UserCodeError, for whatever cannot be run so."""
    place = Place(request.folder)
    place.notes.mkdir(parents=True, exist_ok=True)
    place.outputs.mkdir(exist_ok=True)
    workload = None
    if request.workload is not None:
        kind = find_workload(request.workload)
        workload = with_parameters(kind, request.setting.of("parameter"))
    env = _environment(request, workload, place)
    settings, notes = _settings(request, env, workload)
    graph = env.graph()
    made_at = None if request.latency_from is None else MadeAt(request.latency_from)
    graph, sinks, treatments = _with_measured_sinks(graph, place, made_at)
    files = tuple(sorted(place.outputs.iterdir()))
    if request.expected is not None:
        _check_expected(graph, files)
    vertices = build_execution_graph(graph).vertices
    sources = frozenset(
        vertex.operators[0].uid
        for vertex in vertices
        if vertex.operators[0].spec.reads_from is not None
    )
    where = {one.uid: vertex.id for vertex in vertices for one in vertex.operators}
    return Trial(
        graph,
        settings,
        place,
        workload,
        tuple(sinks.values()),
        tuple(where[uid] for uid in sinks),
        treatments,
        sources,
        frozenset(vertices[where[uid]].operators[0].uid for uid in sinks),
        notes,
        files,
    )


def _check_expected(graph: JobGraph, files: Sequence[Path]) -> None:
    """Raises ConfigurationError if nobody could say what the output must be compared with."""
    endless = [
        uid
        for uid, node in graph.operators.items()
        if node.spec.reads_from is not None and not node.spec.reads_from.bounded
    ]
    if endless:
        raise ConfigurationError(
            f"--expect needs a job that ends by itself; the source {endless[0]} is endless"
        )
    if len(files) != 1:
        raise ConfigurationError(
            f"--expect needs a job with one sink that writes files, this one has {len(files)}"
        )


def _environment(request: RunRequest, workload: Workload | None, place: Place) -> Environment:
    parallelism = request.setting.parallelism
    if workload is not None:
        return workload.environment(parallelism or workload.defaults.parallelism, place)
    from minirt.cli.job_file import load_environment

    if request.job is None:
        raise ConfigurationError("name the Python file of a job, or a --workload")
    return load_environment(request.job, parallelism)


def _settings(
    request: RunRequest, env: Environment, workload: Workload | None
) -> tuple[RunSettings, tuple[str, ...]]:
    chosen = {
        **({} if workload is None else dict(workload.defaults.options)),
        **request.setting.of("option"),
    }
    assignments = [f"{key}={_value(key, text)}" for key, text in chosen.items()]
    folder = str(Path(request.folder, "checkpoints"))
    own = env.defaults
    checkpointing, notes = _checkpointing(own.checkpointing, folder, request.seconds, chosen)
    restart = own.restart
    if request.kills and STRATEGY not in chosen:
        restart = Restart.fixed_delay(attempts=None, delay="0s")
        notes.append("Jobs restart at once, and as often as they are killed.")
    given = read_settings(None, None, assignments, {"checkpointing.mode": request.setting.mode})
    options: Options = dataclasses.replace(own.options, metrics_port=None, control=None)
    applied = apply_settings(
        given, JobSettings(checkpointing=checkpointing, restart=restart, options=options)
    )
    assert applied.checkpointing is not None
    measured = applied.options
    if request.latency_from is None and measured.latency_interval is None:
        measured = dataclasses.replace(measured, latency_interval=MARKERS_EVERY)
    taken = applied.checkpointing
    find_mode(taken.mode, taken.timeout_s, taken.max_concurrent)
    return (
        RunSettings(applied.checkpointing, restart=applied.restart, options=measured),
        tuple(notes),
    )


def _checkpointing(
    own: Checkpointing | None, folder: str, seconds: float, chosen: Mapping[str, str]
) -> tuple[Checkpointing, list[str]]:
    """That of the job, in another place, and often enough to be measured."""
    longest = seconds / CHECKPOINTS_A_RUN
    if own is None:
        interval = min(INTERVAL_S, longest)
        notes = [f"The job takes no checkpoints by itself: here one every {interval:g} s."]
        checkpointing = Checkpointing(folder, interval=interval)
    else:
        interval, notes = min(own.interval_s, longest), []
        checkpointing = dataclasses.replace(
            own, storage=folder, storage_options={}, interval=interval
        )
        if interval < own.interval_s:
            notes = [f"A checkpoint every {interval:g} s, in place of {own.interval_s:g} s."]
    return checkpointing, [] if _INTERVAL in chosen else notes


def _value(key: str, text: str) -> str:
    """Where an option can be absent, "off" is a word for it, too."""
    known = CATALOGUE.get(key)
    absent = known is not None and f'"{ABSENT}"' in known.kind.words
    return ABSENT if absent and text == "off" else text


def _with_measured_sinks(
    graph: JobGraph, place: Place, made_at: MadeAt | None
) -> tuple[JobGraph, dict[str, MeasuredSink], tuple[SinkTreatment, ...]]:
    """The graph, and its sinks by their uids."""
    operators: dict[str, OperatorNode] = {}
    sinks: dict[str, MeasuredSink] = {}
    treatments: list[SinkTreatment] = []
    for uid, node in graph.operators.items():
        operators[uid] = node
        if node.spec.writes_to is None:
            continue
        inner, treatment = _apart(uid, node, place)
        treatments.append(treatment)
        if inner is not None:
            sink = MeasuredSink(inner, str(place.notes), f"sink-{len(sinks)}", made_at)
            sinks[uid] = sink
            operators[uid] = dataclasses.replace(node, spec=SinkSpec(sink))
    if not sinks:
        raise ConfigurationError("the job has no sink that can be measured")
    return dataclasses.replace(graph, operators=operators), sinks, tuple(treatments)


def _apart(uid: str, node: OperatorNode, place: Place) -> tuple[Sink | None, SinkTreatment]:
    """What stands in for a sink, so that the output of runs does not mix; None: nothing can."""
    sink, name = node.spec.writes_to, class_name(node.spec.writes_to)
    if sink is None or not isinstance(node.spec, SinkSpec):
        words = "an operator of its own kind; it runs as it is, unmeasured"
        return None, SinkTreatment(uid, name, "kept", words)
    folder = place.outputs / f"{len(list(place.outputs.iterdir()))}"
    other = sink.redirected(str(folder))
    if other is None:
        words = (
            "replaced by a sink that counts records and forgets them: what it costs is not measured"
        )
        return DiscardSink(), SinkTreatment(uid, name, "replaced", words)
    if other is sink:
        return sink, SinkTreatment(uid, name, "kept", "writes nowhere that runs share")
    folder.mkdir()
    return other, SinkTreatment(
        uid, name, "redirected", "writes into a folder of its run, which is removed afterwards"
    )


def described(sinks: Sequence[SinkTreatment]) -> tuple[str, ...]:
    """In sentences."""
    return tuple(f"Sink {one.operator} ({one.sink}): {one.words}." for one in sinks)
