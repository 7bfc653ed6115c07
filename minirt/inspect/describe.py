"""A checkpoint as plain data: what it holds and how it went, without the values of its state."""

from __future__ import annotations

from typing import Any

from minirt.inspect.checkpoint import StoredCheckpoint, StoredOperator
from minirt.inspect.entries import StoredChannel, StoredEntries
from minirt.inspect.values import to_json
from minirt.protocol import plain


def describe(
    checkpoint: StoredCheckpoint, *, output_is_committed: bool | None = None
) -> dict[str, Any]:
    """Everything about the checkpoint that needs no reading of state. Raises StorageError.

    `output_is_committed` is known to the storage as a whole: see `Checkpoints.has_committed`.
    """
    manifest = checkpoint.manifest
    # A vertex without state or output of its own has no uid in the manifest.
    first_uids = {vertex.id: next(iter(vertex.uids), None) for vertex in manifest.vertices}
    return {
        "job": manifest.job,
        "checkpoint_id": manifest.checkpoint_id,
        "generation": manifest.generation,
        "counts": checkpoint.counts,
        "path": checkpoint.path,
        "mode": manifest.mode,
        "kind": manifest.kind,
        "triggered_at": manifest.triggered_at,
        "completed_at": manifest.completed_at,
        "duration_s": manifest.duration_s,
        "bytes": manifest.bytes,
        "parents": list(checkpoint.parents),
        "subtasks": [
            {**plain.to_plain(stats), "uid": first_uids.get(stats.vertex)}
            for stats in manifest.stats
        ],
        "operators": [_operator(operator) for operator in checkpoint.operators.values()],
        "in_flight": [_channel(channel) for channel in checkpoint.in_flight],
        "output_is_committed": output_is_committed,
        "sink_handles": [to_json(plain.to_plain(held)) for held in manifest.sink_handles],
    }


def _operator(operator: StoredOperator) -> dict[str, Any]:
    vertex = operator.vertex
    return {
        "uid": operator.uid,
        "vertex": vertex.name,
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "holds": [_entries(found) for found in operator.entries],
        "unknown_bytes": operator.unknown_bytes,
    }


def _entries(found: StoredEntries) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "name": found.name,
        "entries": found.entries,
        "bytes": found.bytes,
        "subtasks": [
            {"subtask": part.subtask, "entries": part.entries, "bytes": part.bytes}
            for part in found.sections
        ],
    }


def _channel(channel: StoredChannel) -> dict[str, Any]:
    data = channel.data
    return {
        "link": data.link,
        "partitioning": data.partitioning,
        "sender": data.sender,
        "receiver": data.receiver,
        "side": data.side,
        "records": data.records,
        "bytes": data.bytes,
    }
