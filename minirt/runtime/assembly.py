"""Builds the subtasks of a job from what the coordinator hands out, the same way wherever they run."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minirt.config import Options
from minirt.data.codec import MalformedDataError, RowCodec
from minirt.errors import CorruptCheckpointError, MinirtError
from minirt.graph.execution import ChannelId, ExecutionGraph, SubtaskId
from minirt.io.base import Split
from minirt.monitoring.logs import log_fields
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.restore import InFlightPlan, RestorePlan
from minirt.protocol.stored_watermarks import WatermarkPlan
from minirt.runtime.chain import Chain, ChainContext
from minirt.runtime.channels import InputChannel, OutputChannel
from minirt.runtime.debloat import Debloater, first_window_bytes
from minirt.runtime.elements import Origin
from minirt.runtime.gate_input import GateInput
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.output import LinkOutput, Outlet, Outputs
from minirt.runtime.pacer import Pacer
from minirt.runtime.recovered import InFlightSource, RecoveredChannels
from minirt.runtime.spill import Room, Spill
from minirt.runtime.subtask import Ports, Subtask
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.damage import cannot_restore, fallback_to


@dataclass(frozen=True, slots=True)
class JobPackage:
    """What never changes over the life of a job. `graph` is pickled: each subtask gets its own copy."""

    graph: bytes
    options: Options
    modes: Mapping[str, CheckpointMode]
    """By name: that of the job, and those that a savepoint may ask for."""
    storage: CheckpointStorage | None

    def load_graph(self) -> ExecutionGraph:
        graph: ExecutionGraph = pickle.loads(self.graph)
        return graph


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a generation starts from. `splits` are those of sources without restored state."""

    generation: int
    restore: RestorePlan = field(default_factory=dict)
    in_flight: InFlightPlan = field(default_factory=dict)
    watermarks: WatermarkPlan = field(default_factory=dict)
    restored_from: tuple[CheckpointStorage, ManifestKey] | None = None
    splits: Mapping[SubtaskId, Sequence[tuple[int, Split]]] = field(default_factory=dict)

    def only(self, subtasks: Collection[SubtaskId]) -> Deployment:
        """What these subtasks need of it."""
        return replace(
            self,
            restore={id: parts for id, parts in self.restore.items() if id in subtasks},
            in_flight={id: parts for id, parts in self.in_flight.items() if id in subtasks},
            watermarks={id: known for id, known in self.watermarks.items() if id in subtasks},
            splits={id: splits for id, splits in self.splits.items() if id in subtasks},
        )


@dataclass(frozen=True, slots=True)
class Assembled:
    """A subtask that is ready to be connected: its ends of channels, with their place in the gate."""

    subtask: Subtask
    inputs: Mapping[ChannelId, tuple[int, InputChannel]]
    outputs: Mapping[ChannelId, OutputChannel]


def assemble(
    package: JobPackage,
    deployment: Deployment,
    id: SubtaskId,
    ports: Ports,
    pacer: Pacer,
    make_room: Callable[[OutputChannel], None],
    spill_folder: str | None = None,
) -> Assembled:
    """One subtask, with its state restored and its operators open.

    What memory has no room for goes to files in `spill_folder`, by default where temporary files go.
    """
    graph, options = package.load_graph(), package.options
    limits, vertex = options.limits, graph.vertices[id.vertex]
    metrics = SubtaskMetrics()
    codec = RowCodec(allow_pickle=options.allow_pickle)
    outlet = Outlet(graph.subtask_name(id), codec, limits, metrics, ports.now, make_room)
    spill = Spill(spill_folder, limits.spill_bytes_max)
    links, outputs = _links(graph, id, outlet, spill)
    if options.debloat_s is not None:
        for end in outputs.values():
            end.on_credit(0, first_window_bytes(limits))
    inputs: dict[ChannelId, tuple[int, InputChannel]] = {}
    input_indexes, origins = [], []
    for link in graph.inputs_of(id.vertex):
        for channel_id in link.channels():
            if channel_id.receiver == id.index:
                inputs[channel_id] = (len(inputs), _input_channel(options, ports.now))
                input_indexes.append(link.target_input)
                origins.append(Origin(graph.link_key(link), channel_id.sender))
    gate, restored = None, deployment.watermarks.get(id)
    if inputs:
        room = Room(limits.overdraft_bytes, spill)
        recovered = _recovered(deployment, graph, id, codec, room)
        queues = [queue for _, queue in inputs.values()]
        gate = GateInput(queues, origins, input_indexes, recovered, restored, codec, metrics)
    context = ChainContext(
        subtask=id,
        generation=deployment.generation,
        splits=deployment.splits.get(id, ()),
        now=ports.now,
        watermark_interval_s=limits.watermark_interval_s,
        source_poll_s=limits.source_poll_s,
        allow_pickle=options.allow_pickle,
        metrics=metrics,
    )
    with log_fields(operator=vertex.operators[0].uid, subtask=id.index):
        chain = Chain(vertex, links, context)
        _restore(chain, deployment, id, package.storage)
        if chain.source is not None and restored is not None and restored.watermark is not None:
            chain.source.restore_watermark(restored.watermark)
        chain.open()
    subtask = Subtask(
        id,
        graph.subtask_name(id),
        deployment.generation,
        chain,
        gate,
        Outputs(links, options.buffer_timeout_s),
        package.modes,
        pacer,
        metrics,
        codec,
        {graph.link_key(link): link for link in graph.inputs_of(id.vertex)},
        ports,
    )
    return Assembled(subtask, inputs, outputs)


def _links(
    graph: ExecutionGraph, id: SubtaskId, outlet: Outlet, spill: Spill
) -> tuple[list[LinkOutput], dict[ChannelId, OutputChannel]]:
    """The outgoing links of a subtask, and all their channels."""
    limits, links = outlet.limits, []
    outputs: dict[ChannelId, OutputChannel] = {}
    for link in graph.outputs_of(id.vertex):
        channel_ids = [ChannelId(link.id, id.index, to) for to in link.receivers_of(id.index)]
        ends = [
            OutputChannel(
                limits.output_queue_bytes, limits.input_queue_bytes, limits.overdraft_bytes, spill
            )
            for _ in channel_ids
        ]
        outputs.update(zip(channel_ids, ends, strict=True))
        operators = graph.vertices[id.vertex].operators
        label = next(node.label for node in operators if node.uid == link.source_uid)
        links.append(LinkOutput(link, graph.link_key(link), id.index, ends, label, outlet))
    return links, outputs


def _input_channel(options: Options, now: Callable[[], float]) -> InputChannel:
    limits, target_s = options.limits, options.debloat_s
    debloater = None if target_s is None else Debloater(target_s, limits, now)
    return InputChannel(limits.input_queue_bytes, debloater)


def _recovered(
    deployment: Deployment,
    graph: ExecutionGraph,
    id: SubtaskId,
    codec: RowCodec,
    room: Room,
) -> RecoveredChannels | None:
    channels = deployment.in_flight.get(id, ())
    if not channels or deployment.restored_from is None:
        return None
    links = {graph.link_key(link): link for link in graph.inputs_of(id.vertex)}
    source = InFlightSource(*deployment.restored_from)
    return RecoveredChannels(channels, links, id.index, source, codec, room)


def _restore(
    chain: Chain, deployment: Deployment, id: SubtaskId, own: CheckpointStorage | None
) -> None:
    """Hand the stored snapshots to the operators, reading each only once."""
    if deployment.restored_from is None:
        return
    storage, key = deployment.restored_from
    parts = deployment.restore.get(id, {})
    same_storage = own is not None and own.store.root == storage.store.root
    for ref in dict.fromkeys(ref for part in parts.values() for ref in part.snapshots):
        for path, sections in storage.read_state(ref, key):
            for uid, part in parts.items():
                if ref in part.snapshots:
                    kept = path if part.exact and same_storage else None
                    try:
                        chain.restore(uid, sections, exact=part.exact, path=kept)
                    except MalformedDataError as error:
                        raise _unreadable(error, path, key) from error


def _unreadable(error: MalformedDataError, path: str | None, key: ManifestKey) -> MinirtError:
    where = path or f"in the manifest of checkpoint {key.checkpoint_id}"
    found = CorruptCheckpointError(str(error), where)
    return cannot_restore(found, key.checkpoint_id, fallback_to(None))
