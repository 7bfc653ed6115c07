"""Reads a checkpoint from its stored bytes, by what is documented about their layout.

It judges checkpoints, so it shares no code with what writes and restores them, but for the codec of
values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgpack
import pyarrow as pa

from minirt.data.codec import RowCodec, decode_columns
from minirt.data.layout import unpack_values

_HEADER = struct.Struct("<8sBII")
_FRAME = struct.Struct("<IB")
_COLUMNS = struct.Struct("<QQ")
_STATE_HEAD_BYTES = 8
_CHANGES = b"KEYC"
_CHANGES_PARTS = struct.Struct("<QQQ")
_COLUMNS_KIND = 2


class StoredCheckpoint:
    """The checkpoint whose manifest is at `path` among all stored `objects`.

    Methods raise AssertionError if anything that the manifest refers to is missing.
    """

    def __init__(self, objects: Mapping[str, bytes], path: str) -> None:
        self._objects = objects
        self._manifest = msgpack.unpackb(
            sections_of(objects[path])["manifest"], strict_map_key=False
        )

    @property
    def replaced(self) -> bool:
        """Tell whether its coordinator was: nobody will restore this checkpoint, nor commit its output.

        Claims are deleted oldest first, so the next claim is there, or the generation's own is gone.
        """
        own = self._manifest["generation"]
        claims = [f"generations/{generation:08}.claim" for generation in (own, own + 1)]
        return claims[0] not in self._objects or claims[1] in self._objects

    @property
    def mode(self) -> str:
        """The name of its mode."""
        return str(self._manifest["mode"])

    def positions(self, uid: str) -> dict[str, int | None]:
        """How many records of each split a source has read; None for a split that it has finished.

        A split that is not named at all was finished as well, by a subtask that no longer exists.
        """
        read: dict[str, int | None] = {}
        for snapshot in self._snapshots:
            if section := snapshot.get(f"{uid}\x1fsplits"):
                for _, split, _, offset, skip, finished in msgpack.unpackb(section):
                    read[split] = None if finished else (offset or 0) + skip
        return read

    def state(self, uid: str, name: str) -> list[tuple[Any, Any]]:
        """The keys and values of one state of a keyed operator, those of all its subtasks."""
        sections = [f"{uid}\x1fstate/{name}{end}" for end in ("", "@stretch")]
        entries: list[tuple[Any, Any]] = []
        for ref, snapshot in zip(self._manifest["snapshots"], self._snapshots, strict=True):
            table: dict[Any, Any] = {}
            for older in ref["references"]:
                held = self._older(older["path"])
                for section in sections:
                    if section in older["sections"]:
                        _apply(held[section], table)
            for section in sections:
                _apply(snapshot.get(section, b""), table)
            entries += table.items()
        return entries

    def broadcast(self, uid: str, name: str) -> list[dict[Any, Any]]:
        """The broadcast state of a name, in each subtask of an operator."""
        sections = (snapshot.get(f"{uid}\x1fbroadcast/{name}") for snapshot in self._snapshots)
        return [dict(_entries(section)) for section in sections if section is not None]

    def arrays(
        self, uid: str, prefix: str, *, key: str | Sequence[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The rows of the tables of arrays whose name begins so, those of all subtasks.

        `key` names the columns that tell rows apart. A table that the newest file of a subtask lacks is
        gone, whatever older ones hold of it, and so is a row that says so.
        """
        columns = (key,) if isinstance(key, str) else key
        start = f"{uid}\x1fstate/{prefix}"
        for ref, snapshot in zip(self._manifest["snapshots"], self._snapshots, strict=True):
            older = [(each, self._older(each["path"])) for each in ref["references"]]
            for section in (name for name in snapshot if name.startswith(start)):
                parts = [held[section] for each, held in older if section in each["sections"]]
                rows = {
                    tuple(row[column] for column in columns): row
                    for part in (*parts, snapshot[section])
                    for row in _rows(part)
                }
                name = section.partition("state/")[2]
                yield from ((name, row) for row in rows.values() if not row.get("gone"))

    def waiting(self, uid: str, side: str) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """The records of one side of a join that wait, and whether nothing more is to come of each."""
        return self._in_runs(f"{uid}\x1fjoined/{side}/", f"{uid}\x1fgiven/{side}/")

    def ranked(self, uid: str) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """The records that are among the first of their key, and whether each is that no more."""
        return self._in_runs(f"{uid}\x1franked/", f"{uid}\x1fgiven/")

    def _in_runs(self, start: str, flags: str) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """A run of records may be in an older file; the newest says which are done: one bit each."""
        for ref, snapshot in zip(self._manifest["snapshots"], self._snapshots, strict=True):
            runs = {name: data for name, data in snapshot.items() if name.startswith(start)}
            for older in ref["references"]:
                held = self._older(older["path"])
                runs |= {name: held[name] for name in older["sections"] if name.startswith(start)}
            for name, section in runs.items():
                bits = snapshot.get(flags + name.removeprefix(start), b"")
                for place, row in enumerate(_rows(section)):
                    yield row, bool(bits and bits[place // 8] >> (7 - place % 8) & 1)

    def requests(self, uid: str) -> list[tuple[Any, Any]]:
        """The records whose request is under way, with their event times."""
        sections = (snapshot.get(f"{uid}\x1fasked") for snapshot in self._snapshots)
        return [entry for section in sections if section for entry in _entries(section)]

    def in_flight(self) -> Iterator[tuple[str, int, Any]]:
        """All captured records, with the uid of the operator that was to get them, and at which input."""
        for captured in self._manifest["in_flight"]:
            sections = self._sections(captured["stored"])
            for channel, section in zip(captured["channels"], sections.values(), strict=True):
                target, _, place = channel["link"].rpartition(" > ")[2].partition(":")
                for record in _records(section):
                    yield target, int(place.partition("#")[0]), record

    def handles(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The handles that wait for their commit, each with the uid of its sink."""
        for held in self._manifest["sink_handles"]:
            for handle in held["handles"]:
                yield held["uid"], handle

    @cached_property
    def _snapshots(self) -> list[dict[str, bytes]]:
        return [self._sections(ref) for ref in self._manifest["snapshots"]]

    def _older(self, path: str) -> dict[str, bytes]:
        part = self._part(path)
        if part is None:
            raise AssertionError(f"a completed checkpoint refers to {path}, which is not there")
        return sections_of(part)

    def _sections(self, ref: Mapping[str, Any]) -> dict[str, bytes]:
        if ref["path"] is None:
            return sections_of(ref["inline"])
        part = self._part(ref["path"])
        if part is None or len(part) != ref["bytes"]:
            raise AssertionError(f"snapshot {ref['path']} of a completed checkpoint is not durable")
        return sections_of(part)

    def _part(self, path: str) -> bytes | None:
        """The bytes of a part, which may be a range of a file: FILE@START+LENGTH."""
        name, _, place = path.partition("@")
        whole = self._objects.get(name)
        if whole is None or not place:
            return whole
        start, _, length = place.partition("+")
        return whole[int(start) : int(start) + int(length)]


def sections_of(part: bytes) -> dict[str, bytes]:
    """The named sections of a stored part."""
    _, _, index_bytes, _ = _HEADER.unpack_from(part)
    position = _HEADER.size + index_bytes
    sections = {}
    for name, length, *_ in msgpack.unpackb(part[_HEADER.size : position]):
        sections[name] = part[position : position + length]
        position += length
    return sections


def _apply(section: bytes, table: dict[Any, Any]) -> None:
    """Bring what older sections hold up to date by a newer one.

    Behind the head of changes come three lengths and as many parts: a number, the table of keys that are
    gone, and that of the others.
    """
    if section[:4] == _CHANGES:
        number, gone, _ = _CHANGES_PARTS.unpack_from(section, _STATE_HEAD_BYTES)
        start = _STATE_HEAD_BYTES + _CHANGES_PARTS.size + number
        for key, _ in _entries(section[start : start + gone]):
            table.pop(key, None)
        section = section[start + gone :]
    table.update(_entries(section))


def _entries(section: bytes) -> Iterator[tuple[Any, Any]]:
    """A table of keyed state: behind its head come chunks of two packed columns."""
    position = _STATE_HEAD_BYTES
    while position < len(section):
        keys_bytes, values_bytes = _COLUMNS.unpack_from(section, position)
        middle = position + _COLUMNS.size + keys_bytes
        keys = unpack_values(section[middle - keys_bytes : middle], allow_pickle=False)
        position = middle + values_bytes
        yield from zip(
            keys, unpack_values(section[middle:position], allow_pickle=False), strict=True
        )


def _rows(section: bytes) -> list[dict[str, Any]]:
    """A table of arrays: behind its head comes a stream of Arrow."""
    with pa.ipc.open_stream(section[_STATE_HEAD_BYTES:]) as reader:
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows


def _records(section: bytes) -> Iterator[Any]:
    """The records of frames as they travelled: behind 5 bytes come packed rows, or columns."""
    position = 0
    while position < len(section):
        length, kind = _FRAME.unpack_from(section, position)
        start = position + _FRAME.size
        position = start + length
        payload = section[start:position]
        yield from (
            decode_columns(payload).table.to_pylist()
            if kind == _COLUMNS_KIND
            else RowCodec().decode(payload).records
        )
