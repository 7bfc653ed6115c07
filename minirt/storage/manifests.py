"""The stored form of a manifest: a part with one section."""

from __future__ import annotations

import msgpack

from minirt.data.plain import unpack_plain
from minirt.data.values import MalformedDataError
from minirt.errors import CorruptCheckpointError, UserCodeError
from minirt.protocol.manifest import Manifest
from minirt.storage.parts import decode_part, encode_part


def encode_manifest(manifest: Manifest) -> list[bytes]:
    """The manifest as chunks to be written. Raises UserCodeError if a sink's handles cannot be stored."""
    try:
        packed = msgpack.packb(manifest.to_plain())
    except (TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(
            f"the handles of a sink cannot be stored ({error}); they may hold only None, bool, int,"
            " float, str, bytes, lists and dicts"
        ) from error
    return encode_part({"manifest": packed})


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest that is stored at `path`. Raises CorruptCheckpointError for anything else."""
    sections = decode_part(data, path)
    if "manifest" not in sections:
        raise CorruptCheckpointError("not a manifest", path)
    try:
        value = unpack_plain(sections["manifest"])
    except MalformedDataError as error:
        raise CorruptCheckpointError(f"not a manifest ({error})", path) from error
    return Manifest.from_plain(value, path)
