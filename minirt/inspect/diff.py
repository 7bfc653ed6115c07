"""What differs between two checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from minirt.inspect.checkpoint import StoredCheckpoint
from minirt.inspect.entries import Kind, StoredEntries
from minirt.inspect.values import json_text

_DIGEST_BYTES = 16

Name = tuple[str, Kind, str]


def diff(one: StoredCheckpoint, other: StoredCheckpoint, *, keys: bool = False) -> dict[str, Any]:
    """Both checkpoints side by side, each figure as [of one, of other], None where there is nothing.

    `keys` counts the entries that were added, removed and changed from one to the other. It reads both
    checkpoints and keeps a digest of each entry of the first in memory. Raises StorageError.
    """
    figures = ("job", "checkpoint_id", "generation", "mode", "kind", "bytes", "duration_s")
    manifests = (one.manifest, other.manifest)
    stored = _stored(one), _stored(other)
    names = sorted(stored[0].keys() | stored[1].keys())
    return {
        **{name: [getattr(manifest, name) for manifest in manifests] for name in figures},
        "operators": {
            uid: [_parallelism(one, uid), _parallelism(other, uid)]
            for uid in sorted(one.operators.keys() | other.operators.keys())
        },
        "holds": [_entries(name, stored[0].get(name), stored[1].get(name), keys) for name in names],
        "in_flight_records": [_records(one), _records(other)],
        "in_flight_bytes": [
            sum(channel.bytes for channel in each.in_flight) for each in (one, other)
        ],
    }


def _stored(checkpoint: StoredCheckpoint) -> dict[Name, StoredEntries]:
    return {
        (found.uid, found.kind, found.name): found
        for operator in checkpoint.operators.values()
        for found in operator.entries
    }


def _parallelism(checkpoint: StoredCheckpoint, uid: str) -> int | None:
    operator = checkpoint.operators.get(uid)
    return None if operator is None else operator.vertex.parallelism


def _records(checkpoint: StoredCheckpoint) -> int | None:
    """None if they were not counted."""
    counts = [channel.records for channel in checkpoint.in_flight]
    return None if None in counts else sum(count for count in counts if count is not None)


def _entries(
    name: Name, one: StoredEntries | None, other: StoredEntries | None, keys: bool
) -> dict[str, Any]:
    uid, kind, of = name
    both = (one, other)
    result: dict[str, Any] = {
        "uid": uid,
        "kind": kind,
        "name": of,
        "entries": [None if each is None else each.entries for each in both],
        "bytes": [None if each is None else each.bytes for each in both],
    }
    return {**result, **_key_changes(one, other)} if keys else result


def _key_changes(one: StoredEntries | None, other: StoredEntries | None) -> dict[str, int]:
    before = dict(_digests(one))
    changed = added = 0
    for entry, digest in _digests(other):
        old = before.pop(entry, None)
        added += old is None
        changed += old is not None and old != digest
    return {"added": added, "removed": len(before), "changed": changed}


def _digests(entries: StoredEntries | None) -> Iterator[tuple[bytes, bytes]]:
    """The key of an entry, and the part of it that may change: nothing of a timer can."""
    if entries is None:
        return
    for left, right in entries:
        if entries.kind == "timers":
            yield _digest([left, right]), b""
        else:
            yield _digest(left), _digest(right)


def _digest(value: Any) -> bytes:
    """Stands for a value, whatever it is: keys that were crafted cannot always be hashed."""
    return hashlib.blake2b(json_text(value).encode(), digest_size=_DIGEST_BYTES).digest()
