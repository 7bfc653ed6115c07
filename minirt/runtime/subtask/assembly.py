"""Builds the subtasks of a job from what the coordinator hands out, the same way wherever they run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from minirt.config import Limits, Options
from minirt.data.codec import RowCodec
from minirt.data.errors import MalformedDataError
from minirt.errors import CorruptCheckpointError, MinirtError
from minirt.graph.comebacks import keeps_clock, keeps_order
from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.graph.operator_spec import Thinning
from minirt.monitoring.logs import log_fields
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.operators.common.base import Member
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.restart_commands import FallenBack
from minirt.protocol.stored_watermarks import RestoredWatermarks
from minirt.protocol.trace import TraceSender
from minirt.runtime.channels.buffers import Outlet
from minirt.runtime.channels.channels import InputChannel, OutputChannel, RowRoom
from minirt.runtime.channels.debloat import Debloater, first_window_bytes
from minirt.runtime.channels.logged import CountedInput, LoggedOutput
from minirt.runtime.channels.numbered import (
    NumberedCountedInput,
    NumberedInput,
    NumberedLoggedOutput,
    NumberedOutput,
    Repetition,
)
from minirt.runtime.channels.output import LinkOutput, Outputs
from minirt.runtime.channels.pruning import Pruning
from minirt.runtime.channels.spill import Room, Spill
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.input.elements import Origin
from minirt.runtime.input.gate_input import GateInput, Incoming
from minirt.runtime.input.gathering import GatheringInput
from minirt.runtime.input.input import Input, InputParts
from minirt.runtime.input.latency_timer import LatencyTimer
from minirt.runtime.input.logged_clock import LoggedClock
from minirt.runtime.input.ordered_input import OrderedInput, ServiceOrder
from minirt.runtime.input.recovered import InFlightSource, RecoveredChannels, RestoredInput
from minirt.runtime.input.service_log import FolderFiles, LogFiles, ServiceLog
from minirt.runtime.input.source_input import SourceInput
from minirt.runtime.subtask.chain import Chain, ChainContext
from minirt.runtime.subtask.members import Members
from minirt.runtime.subtask.pacer import Pacer
from minirt.runtime.subtask.parts import Identity, SubtaskParts
from minirt.runtime.subtask.subtask import Ports, Subtask
from minirt.runtime.subtask.tracing import CheckpointTracer
from minirt.storage.checkpoints import CheckpointStorage


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
    order_files: LogFiles | None = None,
) -> Assembled:
    """One subtask, with its state restored and its operators open.

    What memory has no room for goes to files in `spill_folder`, by default where temporary files go. The
    order in which it reads its channels goes to `order_files`, by default in that folder, if it may have to
    repeat that.
    """
    graph, options = package.load_graph(), package.options
    limits, vertex = options.limits, graph.vertices[id.vertex]
    metrics = SubtaskMetrics()
    codec = RowCodec(allow_pickle=options.allow_pickle)
    outlet = Outlet(graph.subtask_name(id), codec, limits, metrics, make_room)
    spill = Spill(spill_folder, limits.spill_bytes_max)
    repetition = Repetition(partial(ports.caught_up, id)) if id in package.alone else None
    links, outputs = _links(graph, id, outlet, spill, package, repetition)
    if repetition is not None:
        _go_on_behind(repetition, deployment.fallen_back.get(id))
    inputs: dict[ChannelId, tuple[int, InputChannel]] = {}
    incoming: list[Incoming] = []
    for link in graph.inputs_of(id.vertex):
        key = graph.link_key(link)
        for channel_id in link.channels_into(id.index):
            sender = SubtaskId(link.source, channel_id.sender)
            channel = _input_channel(package, vertex, id, sender, ports)
            before = deployment.processed.get(channel_id, 0)
            if isinstance(channel, CountedInput):
                channel.records = before
            if isinstance(channel, NumberedInput):
                channel.had = before
            inputs[channel_id] = (len(inputs), channel)
            origin = Origin(key, channel_id.sender)
            incoming.append(Incoming(channel, origin, link.target_input))
    edges, known = graph.edges_into(id.vertex), deployment.watermarks.get(id)
    room = Room(limits.overdraft_bytes, spill)
    recovered = _recovered(deployment, edges, id, codec, room, package.storage)
    restored = RestoredInput(None if known is None else known.watermark, recovered)
    identity = Identity(id, deployment.generation, vertex.operators[0].uid, graph.subtask_name(id))
    with log_fields(operator=identity.head, subtask=id.index):
        if order_files is None and spill_folder is not None:
            order_files = FolderFiles(spill_folder)
        order = _order(package, deployment, graph, id, repetition, order_files, ports)
        read_clock = None if order is None or order.clock is None else order.clock.read
        context = _chain_context(package, deployment, graph, id, ports, metrics, read_clock)
        chain = Chain(vertex, links, context)
        common = InputParts(edges, codec, metrics, restored)
        input = _input(vertex, chain, incoming, common, known, id, ports, order, options)
        members = Members([each for each in (input, *chain.operators) if isinstance(each, Member)])
        _restore(members, deployment, id, package.storage)
        members.open()
    on_demand = options.flush == "on_demand"
    outlets = Outputs(links, options.buffer_timeout_s, on_demand=on_demand)
    tracer = _tracer(identity, input, options, ports) if options.trace else None
    parts = SubtaskParts(
        *(identity, input, chain, members, outlets, metrics, tracer),
        deployment.fallen_back.get(id),
        repetition,
    )
    return Assembled(Subtask(parts, package.modes, pacer, ports, package.local), inputs, outputs)


def _tracer(identity: Identity, input: Input, options: Options, ports: Ports) -> CheckpointTracer:
    origins = [] if input.is_source else input.origins
    senders = [
        TraceSender(input.links[origin.link].source, origin.sender, origin.link)
        for origin in origins
    ]
    return CheckpointTracer(
        identity.id, identity.name, senders, ports.clock.monotonic, options.limits.trace_events
    )


def _input(
    vertex: Vertex,
    chain: Chain,
    incoming: Sequence[Incoming],
    parts: InputParts,
    known: RestoredWatermarks | None,
    id: SubtaskId,
    ports: Ports,
    order: ServiceOrder | None,
    options: Options,
) -> Input:
    spec = vertex.operators[0].spec
    if spec.reading is not None:
        watermark = None if known is None else known.watermark
        tell = partial(ports.progressed, id)
        latency = None
        if options.latency_interval_s is not None:
            uid, now = vertex.operators[0].uid, ports.clock.monotonic()
            latency = LatencyTimer(uid, options.latency_interval_s, now)
        return SourceInput(chain.head_context, spec.reading, parts, watermark, tell, latency)
    if order is not None:
        return OrderedInput(incoming, parts, known, order)
    if spec.gathers is not None:
        return GatheringInput(incoming, parts, known, spec.gathers, ports.clock.monotonic)
    return GateInput(incoming, parts, known)


def _order(
    package: JobPackage,
    deployment: Deployment,
    graph: ExecutionGraph,
    id: SubtaskId,
    repetition: Repetition | None,
    files: LogFiles | None,
    ports: Ports,
) -> ServiceOrder | None:
    """That in which the subtask reads its channels, if it may have to repeat it. Raises StorageError."""
    vertex = graph.vertices[id.vertex]
    if repetition is None or files is None or not keeps_order(graph, vertex):
        return None
    bytes_max = package.options.limits.order_log_bytes
    log = ServiceLog(files, deployment.generation, id, graph.subtask_name(id), bytes_max)
    at, again = deployment.fallen_back.get(id), None
    if at is None:
        log.begin()
    else:
        repetition.begin(log)
        again = deque(log.go_on(at.cut.number))
    clock = LoggedClock(ports.clock.now, log, again) if keeps_clock(vertex) else None
    return ServiceOrder(log, again, partial(repetition.end, log), clock)


def _chain_context(
    package: JobPackage,
    deployment: Deployment,
    graph: ExecutionGraph,
    id: SubtaskId,
    ports: Ports,
    metrics: SubtaskMetrics,
    read_clock: Callable[[], int] | None,
) -> ChainContext:
    options = package.options
    return ChainContext(
        subtask=id,
        job=deployment.job,
        staging=None if package.storage is None else package.storage.staging,
        generation=deployment.generation,
        splits=deployment.splits.get(id, ()),
        clock=ports.clock,
        watermark_interval_s=options.limits.watermark_interval_s,
        source_poll_s=options.limits.source_poll_s,
        options=options,
        metrics=metrics,
        wake=partial(ports.wake, id),
        run_beside=ports.run_beside,
        run_async=ports.run_async,
        in_order=graph.in_order,
        watermarks_restored=deployment.watermarks.get(id) is not None,
        repeats=id in package.alone and bool(graph.outputs_of(id.vertex)),
        read_clock=read_clock,
    )


def _go_on_behind(repetition: Repetition, at: FallenBack | None) -> None:
    """Number what is sent behind what was ahead of the snapshot that the subtask has fallen back to."""
    if at is not None:
        sent, had = dict(at.cut.sent), dict(at.had)
        for channel in repetition.channels:
            channel.begin_at(sent[channel.id], had[channel.id], at.cut.number, ended=at.cut.ended)


def _links(
    graph: ExecutionGraph,
    id: SubtaskId,
    outlet: Outlet,
    spill: Spill,
    package: JobPackage,
    repetition: Repetition | None,
) -> tuple[list[LinkOutput], dict[ChannelId, OutputChannel]]:
    """The outgoing links of a subtask, and all their channels."""
    links = []
    outputs: dict[ChannelId, OutputChannel] = {}
    for link in graph.outputs_of(id.vertex):
        channel_ids = [ChannelId(link.id, id.index, to) for to in link.receivers_of(id.index)]
        reader = graph.vertices[link.target]
        ends = [
            _output_channel(package, reader, channel_id, outlet, spill, repetition)
            for channel_id in channel_ids
        ]
        outputs.update(zip(channel_ids, ends, strict=True))
        operators = graph.vertices[id.vertex].operators
        label = next(node.label for node in operators if node.uid == link.source_uid)
        # Who repeats what was sent repeats records, not how they fell into batches.
        thinning = None if repetition is not None else _thinning(link, reader)
        key = graph.link_key(link)
        pruning = _pruning(graph, link, reader) if package.prunes else None
        links.append(LinkOutput(link, key, id.index, ends, label, outlet, thinning, pruning))
    return links, outputs


def _thinning(link: Link, reader: Vertex) -> Thinning | None:
    head = reader.operators[0]
    key = head.keys[link.target_input] if head.keys else None
    return None if key is None else head.spec.thinning(key)


def _pruning(graph: ExecutionGraph, link: Link, reader: Vertex) -> Pruning | None:
    head = reader.operators[0]
    key = head.keys[0] if len(head.keys) == 1 else None
    if key is None:
        return None
    edges = (*graph.links, *graph.calls)
    tags = {edge.tag for edge in edges if edge.source_uid == head.uid and edge.tag is not None}
    wanted = head.spec.columns_read(key, tags)
    return None if wanted is None else Pruning(wanted)


def _output_channel(
    package: JobPackage,
    reader: Vertex,
    id: ChannelId,
    outlet: Outlet,
    spill: Spill,
    repetition: Repetition | None,
) -> OutputChannel:
    """The receiver, the sender, both or none of them may come back alone."""
    limits, target_s = _sizes(package, reader)
    rows = RowRoom(limits.row_output_queue_bytes, limits.row_input_queue_bytes)
    sizes = (limits.output_queue_bytes, limits.input_queue_bytes, limits.overdraft_bytes)
    queue = (*sizes, spill, rows)
    named: _Named = {"id": id, "codec": outlet.codec}
    local = package.local
    logged = local is not None and SubtaskId(reader.id, id.receiver) in package.alone
    log_bytes = 0 if local is None else local.log_bytes
    end: OutputChannel
    if repetition is None:
        end = (
            LoggedOutput(*queue, **named, log_bytes=log_bytes) if logged else OutputChannel(*queue)
        )
    elif logged:
        end = NumberedLoggedOutput(*queue, **named, repetition=repetition, log_bytes=log_bytes)
    else:
        end = NumberedOutput(*queue, **named, repetition=repetition)
    if target_s is not None:
        end.on_credit(0, first_window_bytes(limits))
    return end


def _sizes(package: JobPackage, reader: Vertex) -> tuple[Limits, float | None]:
    """The limits of the channels into a vertex, and their target of debloating."""
    return package.options.of_channels_into(reader.operators[0].uid, reader.queue_s)


class _Named(TypedDict):
    id: ChannelId
    codec: RowCodec


_INPUTS: Mapping[tuple[bool, bool], type[InputChannel]] = {
    (False, False): InputChannel,
    (False, True): CountedInput,
    (True, False): NumberedInput,
    (True, True): NumberedCountedInput,
}
"""By whether the sender may come back alone, and the receiver."""


def _input_channel(
    package: JobPackage, reader: Vertex, id: SubtaskId, sender: SubtaskId, ports: Ports
) -> InputChannel:
    limits, target_s = _sizes(package, reader)
    debloater = None if target_s is None else Debloater(target_s, limits, ports.clock.monotonic)
    channel = _INPUTS[sender in package.alone, id in package.alone]
    return channel(limits.input_queue_bytes, debloater, limits.row_input_queue_bytes)


def _recovered(
    deployment: Deployment,
    edges: Mapping[str, Link],
    id: SubtaskId,
    codec: RowCodec,
    room: Room,
    own: CheckpointStorage | None,
) -> RecoveredChannels | None:
    channels = deployment.in_flight.get(id, ())
    if not channels or deployment.restored_from is None:
        return None
    source = InFlightSource(*_origin(deployment.restored_from, own))
    return RecoveredChannels(channels, edges, id.index, source, codec, room)


def _origin(
    restored_from: tuple[CheckpointStorage, ManifestKey], own: CheckpointStorage | None
) -> tuple[CheckpointStorage, ManifestKey]:
    """Where to read from: in the job's own storage, as this host may have copies of what is there."""
    storage, key = restored_from
    if own is not None and own.store.root == storage.store.root:
        return own, key
    return storage, key


def _restore(
    members: Members, deployment: Deployment, id: SubtaskId, own: CheckpointStorage | None
) -> None:
    """Hand the stored snapshots to the operators, reading each only once.

    All subtasks read them in one order: what is dealt in turn through all of them goes by it.
    """
    if deployment.restored_from is None:
        return
    storage, key = _origin(deployment.restored_from, own)
    parts = deployment.restore.get(id, {})
    same_storage = storage is own
    refs = {ref for part in parts.values() for ref in part.snapshots}
    for ref in sorted(refs, key=lambda ref: (ref.vertex, ref.subtask)):
        for path, sections in storage.read_state(ref, key):
            for uid, part in parts.items():
                if ref in part.snapshots:
                    kept = path if part.exact and same_storage else None
                    try:
                        members.restore(uid, sections, exact=part.exact, path=kept)
                    except MalformedDataError as error:
                        raise _unreadable(error, path, key) from error


def _unreadable(error: MalformedDataError, path: str | None, key: ManifestKey) -> MinirtError:
    where = path or f"in the manifest of checkpoint {key.checkpoint_id}"
    return CorruptCheckpointError(str(error), where)
