"""Savepoints from data: keyed state that no job has built, for a job that starts with a history.

    writer = SavepointWriter(job, "savepoint", uid="sums", key=["airport"], schema=schema)
    for subtask in range(writer.parallelism):
        receipts.append(writer.write(subtask, batches_of(subtask)))
    savepoint = writer.complete(receipts)

`writer.subtasks_of` tells which subtask keeps a row. A writer travels by pickle, so parts can be written
side by side, on several machines; each holds one part in memory. A part that is written again, after its
writer died, replaces nothing: the receipts that `complete` gets say which files count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.api.environment import Environment
from minirt.clock import SYSTEM_CLOCK
from minirt.config import Limits
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import JobGraph, OperatorNode
from minirt.graph.operator_spec import Site
from minirt.graph.planner import build_execution_graph
from minirt.modes import DEFAULT_MODE
from minirt.operators.common.filling import StateFilling, groups_of
from minirt.protocol import plain
from minirt.protocol.key_groups import group_range
from minirt.protocol.manifest import (
    MANIFEST_VERSION,
    Manifest,
    SnapshotRef,
    SubtaskStats,
    VertexEntry,
)
from minirt.protocol.restore import vertex_entries
from minirt.protocol.savepoint_requests import Savepoint
from minirt.state.stored import UID_SEPARATOR
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.savepoints import check_target
from minirt.storage.store import ObjectStore
from minirt.units import positive

_ID = 1
_GENERATIONS = 99_999_999
"""Parts are stored under generations drawn at random, so that no two attempts share a file."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What was written of one subtask, and how long it took."""

    ref: SnapshotRef
    took_s: float


class SavepointWriter:
    """Writes a savepoint that holds the state of one operator of `job`, filled from columns.

    `key` names the columns of the key, in the order of the job; each other column of `schema` fills what
    has its name: the states of a KeyedProcess, `value` of `reduce`, the results of `aggregate`. Null fills
    nothing. Whole numbers of a key get the type that the job has for them, 64 bits if that is not known.
    `path` is an empty folder or URL, `storage_options` go to fsspec. There are `parallelism`
    parts, as many as the operator has subtasks unless you say so; the job may start with any other number.

    Raises ConfigurationError for an operator that is not there or cannot be filled, for columns that do not
    fit, and for a path where something is; StorageError where nothing can be stored.
    """

    def __init__(
        self,
        job: Environment | JobGraph,
        path: str | os.PathLike[str],
        *,
        uid: str,
        key: Sequence[str],
        schema: pa.Schema,
        parallelism: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        graph = job.graph() if isinstance(job, Environment) else job
        node = _operator(graph, uid)
        self._job, self._uid, self._key = graph.name, uid, tuple(key)
        self._max_parallelism = node.max_parallelism
        self.parallelism = positive("parallelism", parallelism or node.parallelism)
        """How many parts there are."""
        if self.parallelism > node.max_parallelism:
            raise ConfigurationError(
                f"parallelism {parallelism} is above max_parallelism {node.max_parallelism} of {node.label}"
            )
        self._filling = _filling(node)
        self._schema = schema
        self._stored = _stored(schema, self._key, node.schema)
        self._filling.check(self._key, self._stored)
        self._vertex = _vertex_of(graph, uid, self.parallelism)
        store = ObjectStore(os.fspath(path), storage_options)
        check_target(store)
        self._storage = CheckpointStorage(store, Limits().inline_snapshot_bytes)
        self._began_at = SYSTEM_CLOCK.now()

    def subtasks_of(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Which part each row belongs to, from 0: the engine's hash of the key says so."""
        stored = self._as_stored(batch)
        groups = groups_of(stored, self._key, self._max_parallelism)
        return groups * self.parallelism // self._max_parallelism

    def write(self, subtask: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Store one part: all rows of a subtask, in batches of that schema. Returns a receipt.

        Raises ConfigurationError for a key that comes twice, and for values that no state can hold.
        """
        began_at = SYSTEM_CLOCK.monotonic()
        groups = group_range(subtask, self.parallelism, self._max_parallelism)
        sections = self._filling.sections(
            self._key, self._own(subtask, batches), groups, self._max_parallelism
        )
        stored = {f"{self._uid}{UID_SEPARATOR}{name}": data for name, data in sections.items()}
        attempt = 1 + uuid4().int % _GENERATIONS
        ref = self._storage.write_snapshot(_ID, attempt, self._vertex.id, subtask, stored)
        packed: bytes = msgpack.packb(
            plain.to_plain(_Part(ref, SYSTEM_CLOCK.monotonic() - began_at))
        )
        return packed

    def complete(self, receipts: Iterable[bytes]) -> Savepoint:
        """The savepoint of these parts, complete with this call. A part without rows need not be there."""
        parts = [plain.from_plain(_Part, msgpack.unpackb(receipt)) for receipt in receipts]
        subtasks = sorted(part.ref.subtask for part in parts)
        if len(set(subtasks)) < len(subtasks):
            raise ConfigurationError(f"a part was handed over twice: {subtasks}")
        now = SYSTEM_CLOCK.now()
        manifest = Manifest(
            version=MANIFEST_VERSION,
            job=self._job,
            checkpoint_id=_ID,
            generation=1,
            mode=DEFAULT_MODE,
            kind="savepoint",
            triggered_at=self._began_at,
            completed_at=now,
            vertices=(self._vertex,),
            snapshots=tuple(part.ref for part in parts),
            sink_handles=(),
            stats=tuple(self._stats(part) for part in parts),
        )
        # Attempts that came to no receipt have left files behind.
        self._delete_all_but(manifest.summary().paths)
        self._storage.create_manifest(manifest)
        root = self._storage.store.root
        return Savepoint(root, _ID, manifest.mode, manifest.duration_s, manifest.bytes)

    def discard(self) -> None:
        """Delete all that was written, as it comes to no savepoint: the path may be used again."""
        self._delete_all_but(frozenset())

    def _own(self, subtask: int, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The batches, once they were seen to be of the schema and the subtask."""
        for batch in batches:
            if not batch.schema.equals(self._schema):
                raise ConfigurationError(
                    f"the columns of a batch are {batch.schema}, not {self._schema}"
                )
            if (self.subtasks_of(batch) != subtask).any():
                raise ConfigurationError(
                    f"part {subtask} was given rows of other parts; ask subtasks_of"
                )
            yield self._as_stored(batch)

    def _as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._stored is self._schema:
            return batch
        columns = [
            column.cast(kind)
            for column, kind in zip(batch.columns, self._stored.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._stored)

    def _delete_all_but(self, needed: frozenset[str]) -> None:
        for path in self._storage.store.list():
            if path not in needed:
                self._storage.store.delete(path)

    def _stats(self, part: _Part) -> SubtaskStats:
        return SubtaskStats(
            vertex=self._vertex.id,
            subtask=part.ref.subtask,
            name=self._vertex.name,
            start_delay_s=0.0,
            alignment_s=0.0,
            sync_s=part.took_s,
            async_s=0.0,
            acknowledged_after_s=part.took_s,
            state_bytes=part.ref.bytes,
            in_flight_bytes=0,
            processed_bytes=0,
            unaligned=False,
        )


def _operator(graph: JobGraph, uid: str) -> OperatorNode:
    node = graph.operators.get(uid)
    if node is None:
        known = ", ".join(repr(one.uid) for one in graph.operators.values() if one.keyed)
        raise ConfigurationError(
            f"no operator of the job {graph.name!r} has the uid {uid!r}; give it one, uid={uid!r}; those "
            f"with keyed state are {known or 'none'}"
        )
    return node


def _stored(schema: pa.Schema, key: Sequence[str], known: pa.Schema | None) -> pa.Schema:
    """The schema with whole numbers of the key in the type that the job has, or else in 64 bits.

    Python's integers and those of JSON have 64 bits, while many columns of Spark have 32.
    """
    stored = schema
    for name in key:
        place = schema.get_field_index(name)
        if place < 0 or not pa.types.is_integer(schema.field(place).type):
            continue
        kind = known.field(name).type if known is not None and name in known.names else pa.int64()
        if pa.types.is_integer(kind) and kind != schema.field(place).type:
            stored = stored.set(place, schema.field(place).with_type(kind))
    return stored


def _filling(node: OperatorNode) -> StateFilling:
    filling = node.spec.filling(Site(node.label, keys=node.keys), node.schema)
    if filling is None:
        raise ConfigurationError(
            f"the state of operator {node.label}, of the kind {node.spec.kind}, cannot be filled; "
            "that of reduce, aggregate and process with keys can"
        )
    return filling


def _vertex_of(graph: JobGraph, uid: str, parallelism: int) -> VertexEntry:
    """The vertex of the operator as manifests remember it, without what else is in its chain."""
    entries = vertex_entries(build_execution_graph(graph).topology)
    entry = next(entry for entry in entries if uid in entry.uids)
    return replace(entry, id=0, uids=(uid,), parallelism=parallelism, edges=(), unnamed=())
