"""The way out where a checkpoint holds output that can never be committed: it is given up, sink by sink.

Each restore commits what its checkpoint holds of every sink before anything else. Where the other side
refuses that for ever, no restore could succeed. The user may then give up what *one* checkpoint holds of
*one* sink: it is dropped instead of committed, and this is said in the log, the history and the metrics.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minirt.errors import ConfigurationError
from minirt.protocol.choosing import RestorePoint
from minirt.protocol.manifest import Manifest, SinkHandles
from minirt.protocol.restore_options import RestoreOptions, output_of
from minirt.protocol.topology import OperatorFacts, Topology
from minirt.wording import given


@dataclass(frozen=True, slots=True)
class GivenUpOutput:
    """What checkpoint `checkpoint_id` held of the sink `uid`, and the restore has dropped."""

    uid: str
    checkpoint_id: int
    held: tuple[SinkHandles, ...]

    @property
    def outputs(self) -> int:
        """The number of pending outputs: one for each handle."""
        return sum(len(part.handles) for part in self.held)

    @property
    def records(self) -> int | None:
        """The number of records in them; None if the sink does not say it of each output."""
        handles = [handle for part in self.held for handle in part.handles]
        counts = [handle.get("rows", handle.get("records")) for handle in handles]
        known = [count for count in counts if type(count) is int]
        return sum(known) if len(known) == len(counts) else None

    def __str__(self) -> str:
        prepared = sorted({part.checkpoint_id for part in self.held})
        subtasks = len({part.subtask for part in self.held})
        records = "an unknown number of" if self.records is None else self.records
        return (
            f"checkpoint {self.checkpoint_id} is restored without the output of sink {self.uid!r}: "
            f"{records} records in {self.outputs} pending outputs of {subtasks} subtasks, prepared for "
            f"{_checkpoints(prepared)}, are given up; they are lost, unless an earlier commit has "
            "published them already"
        )


@dataclass(frozen=True, slots=True)
class AnnounceGivenUp:
    """Tell whoever watches that output was given up."""

    given_up: GivenUpOutput


def check_gives_up_a_sink(options: RestoreOptions, topology: Topology) -> None:
    """Raise ConfigurationError if the output to be given up is that of no sink of the job."""
    if options.give_up_output_of is None:
        return
    uid, _ = output_of(options.give_up_output_of)
    operators = {each.uid: each for each in _operators(topology)}
    sinks = [each.uid for each in operators.values() if each.writes]
    if uid in sinks:
        return
    listed = ", ".join(map(repr, sinks)) or "none"
    what = f"operator {uid!r} is no sink" if uid in operators else f"no sink has the uid {uid!r}"
    near = difflib.get_close_matches(uid, sinks, 1)
    hint = f"did you mean {near[0]!r}? " if near and uid not in operators else ""
    raise ConfigurationError(
        f"{given('give_up_output_of', options.give_up_output_of)}: {what}; {hint}The sinks are {listed}"
    )


def given_up_by(options: RestoreOptions, point: RestorePoint | None) -> GivenUpOutput | None:
    """What is given up of the checkpoint that the user chose.

    Raises ConfigurationError if it is another checkpoint than the user named, or holds no such output.
    """
    named = options.give_up_output_of
    if named is None:
        return None
    uid, wanted = output_of(named)
    if point is None or point.manifest.checkpoint_id != wanted:
        chosen = "none" if point is None else str(point.manifest.checkpoint_id)
        raise ConfigurationError(
            f"{given('give_up_output_of', named)} has no effect: {given('restore', options.which)} chose "
            f"checkpoint {chosen}; leave it out once the job is past checkpoint {wanted}, or give "
            f"{given('restore', wanted)}"
        )
    held = _held_of(uid, point.manifest.sink_handles)
    if not held:
        raise ConfigurationError(
            f"{given('give_up_output_of', named)} has no effect: checkpoint {wanted} holds no output of "
            f"sink {uid!r}; leave it out"
        )
    return GivenUpOutput(uid, wanted, held)


def orphaned_output(manifest: Manifest, topology: Topology) -> Iterator[GivenUpOutput]:
    """Output of sinks that the job does not have any more: there is nobody to commit it."""
    sinks = {each.uid for each in _operators(topology) if each.writes}
    for uid in sorted({held.uid for held in manifest.sink_handles} - sinks):
        if held := _held_of(uid, manifest.sink_handles):
            yield GivenUpOutput(uid, manifest.checkpoint_id, held)


def way_out(uid: str, held: Sequence[SinkHandles], manifest: Manifest) -> str:
    """What a user can do whose sink refuses for ever what a restored checkpoint holds."""
    checkpoint_id = manifest.checkpoint_id
    outputs = sum(len(part.handles) for part in held)
    return (
        f"checkpoint {checkpoint_id} cannot be restored until this output is committed. Mend the target "
        f"and start the job again; or, as a last resort, give up the {outputs} pending outputs that the "
        f"checkpoint holds of sink {uid!r}, which are then lost: {given('restore', checkpoint_id)} "
        f"{given('give_up_output_of', f'{uid}@{checkpoint_id}')}"
    )


def _held_of(uid: str, handles: Sequence[SinkHandles]) -> tuple[SinkHandles, ...]:
    return tuple(part for part in handles if part.uid == uid and part.handles)


def _operators(topology: Topology) -> Iterator[OperatorFacts]:
    return (each for vertex in topology.vertices for each in vertex.operators)


def _checkpoints(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"checkpoint {ids[0]}"
    return f"{len(ids)} checkpoints, {ids[0]} to {ids[-1]}"
