"""The stored form of a manifest: a part with one section."""

from __future__ import annotations

from minirt.data.errors import MalformedDataError
from minirt.data.plain import pack_plain, unpack_plain
from minirt.errors import CorruptCheckpointError, UserCodeError
from minirt.protocol.manifest import Manifest, SinkHandles
from minirt.storage.parts import decode_part, encode_part


def encode_manifest(manifest: Manifest) -> list[bytes]:
    """The manifest as chunks to be written. Raises UserCodeError if a sink's handles cannot be stored."""
    for held in manifest.sink_handles:
        _check_handles(held)
    packed = pack_plain(manifest.to_plain())
    return encode_part({"manifest": packed})


def _check_handles(held: SinkHandles) -> None:
    """What comes back from storage must be what was stored, not just something like it."""
    try:
        for handle in held.handles:
            if type(handle) is not dict:
                raise TypeError(f"a handle is a dict, not a {type(handle).__name__}")
            pack_plain(handle)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(
            f"the handles of sink {held.uid!r} cannot be stored ({error}); they are dicts that hold only "
            "None, bool, int, float, str, bytes, lists and dicts"
        ) from error


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
