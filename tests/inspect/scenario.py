"""Checkpoints as a job would store them, with everything in them that can be in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.protocol.manifest import (
    ChannelData,
    Manifest,
    Reference,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
    VertexEntry,
)
from minirt.runtime.channels.batches import data_frame
from minirt.runtime.channels.frames import Frame
from minirt.state.keyed import KeyedState
from minirt.state.sections import section_bytes
from minirt.state.timers import Timers
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore

GROUPS = 128
LINK = "numbers > total:0"
SPLIT = [0, "a.txt", {"file": "a.txt"}, 17, 3, False]
VERTICES = (
    VertexEntry(0, ("numbers",), "source", 1, GROUPS),
    VertexEntry(1, ("total", "out"), "total > out", 2, GROUPS),
)


def new_storage(url: str, inline_bytes_max: int = 0) -> CheckpointStorage:
    """An empty storage whose first generation has started."""
    storage = CheckpointStorage(ObjectStore(url), inline_bytes_max)
    assert storage.resolve_generation(storage.claim_generation(), None)
    return storage


STATS = (SubtaskStats(1, 0, "total > out", 0.1, 0.2, 0.03, 0.04, 0.4, 500, 60, 70, True),)


def store(
    storage: CheckpointStorage,
    checkpoint_id: int,
    states: Mapping[str, Mapping[Any, Any]],
    *,
    timers: Sequence[tuple[int, Any]] = (),
    frames: Sequence[Frame] = (),
    allow_pickle: bool = False,
    references: tuple[str, ...] = (),
    generation: int = 1,
    more: Sequence[SnapshotRef] = (),
    stats: Sequence[SubtaskStats] = STATS,
) -> Manifest:
    """Store a checkpoint whose operator "total" has these states, their keys dealt to two subtasks.

    `more` are snapshots that were stored already.
    """
    place = (checkpoint_id, generation)
    split = {"numbers\x1fsplits": msgpack.packb([SPLIT])}
    refs = [storage.write_snapshot(*place, 0, 0, split)]
    for subtask in range(2):
        sections = _sections(states, timers, subtask, allow_pickle)
        refs.append(storage.write_snapshot(*place, 1, subtask, sections))
    if references:
        refs[-1] = _with_references(refs[-1], references)
    in_flight = ()
    if frames:
        data = b"".join(frame.wire() for frame in frames)
        records = sum(frame.records for frame in frames)
        channel = ChannelData(LINK, "hash", 0, 1, 2, "in", len(data), records=records)
        in_flight = (storage.write_in_flight(*place, 1, 1, [(channel, (data,))]),)
    manifest = Manifest(
        version=1,
        job="sums",
        checkpoint_id=checkpoint_id,
        generation=generation,
        mode="unaligned",
        kind="checkpoint",
        triggered_at=1_700_000_000.0,
        completed_at=1_700_000_000.5,
        vertices=VERTICES,
        snapshots=(*refs, *more),
        sink_handles=(SinkHandles("out", checkpoint_id, 0, ({"file": "part-1", "raw": b"\1"},)),),
        stats=tuple(stats),
        in_flight=in_flight,
    )
    assert storage.create_manifest(manifest)
    return manifest


def frame(*records: Any, times: list[int] | None = None) -> Frame:
    return data_frame(Rows(list(records), times), RowCodec())


def _sections(
    states: Mapping[str, Mapping[Any, Any]],
    timers: Sequence[tuple[int, Any]],
    subtask: int,
    allow_pickle: bool,
) -> dict[str, bytes]:
    keyed = KeyedState(GROUPS, range(GROUPS), allow_pickle=allow_pickle)
    pending = Timers(GROUPS, range(GROUPS))
    for name, table in states.items():
        own = list(table.items())[subtask::2]
        keyed.table(name).update(own)
    for at, key in list(timers)[subtask::2]:
        pending.set("event", at, key)
    return {
        **{
            f"total\x1fstate/{name}": section_bytes(section)
            for name, section in keyed.snapshot().items()
        },
        **{f"total\x1ftimers/{domain}": data for domain, data in pending.snapshot().items()},
    }


def _with_references(ref: SnapshotRef, references: tuple[str, ...]) -> SnapshotRef:
    return SnapshotRef(
        ref.vertex,
        ref.subtask,
        ref.path,
        ref.inline,
        ref.bytes,
        ref.crc,
        tuple(Reference(path, ()) for path in references),
    )
