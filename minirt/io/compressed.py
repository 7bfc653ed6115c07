"""Opens compressed files so that one that was cut short is an error, whatever compressed it."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from typing import Any, BinaryIO, cast

from fsspec.compression import compr

DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""What reading a damaged file raises, beside OSError."""

_CHUNK_BYTES = 32 * 1024
"""How many compressed bytes are decompressed at a time. Text may become a thousand times as long."""


def decompressed(stream: BinaryIO, codec: str, path: str) -> BinaryIO:
    """The bytes that `stream` holds compressed, by the name that fsspec has for the codec.

    The stream raises OSError or one of `DAMAGED` where the compressed bytes are damaged, or end before they
    are complete. Raises ValueError for an archive that holds no file, or several.
    """
    if codec == "zip":
        return _only_member(stream, path)
    if codec == "zstd":
        return cast(BinaryIO, io.BufferedReader(_ZstdStream(stream, path)))
    return cast(BinaryIO, compr[codec](stream, mode="rb"))


def _only_member(stream: BinaryIO, path: str) -> BinaryIO:
    try:
        archive = zipfile.ZipFile(stream)
    except zipfile.BadZipFile as error:
        raise ValueError(f"the archive is damaged or cut short ({error})") from error
    members = [one for one in archive.infolist() if not one.is_dir()]
    if len(members) != 1:
        raise ValueError(
            f"the archive {path} holds {len(members)} files, and one is read of each; unpack it"
        )
    return cast(BinaryIO, archive.open(members[0]))


class _ZstdStream(io.RawIOBase):
    """Frames of zstd, one behind the other. The reader of `zstandard` takes a cut frame for a whole one."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        import zstandard

        self._stream = stream
        self._path = path
        self._failure: type[Exception] = zstandard.ZstdError
        self._frame: Any = None
        """The decompressor of a frame that has begun and not ended; None between frames."""
        self._rest = b""
        """Compressed bytes behind the end of a frame."""
        self._ready = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._decompress():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position, by decompressing all that is before it; at most to the end."""
        if whence != io.SEEK_SET:
            offset = self._position + offset if whence == io.SEEK_CUR else 1 << 62
        if offset < self._position:
            self._stream.seek(0)
            self._frame, self._rest, self._position = None, b"", 0
            self._ready = memoryview(b"")
        while self._position < offset:
            if not self._ready and not self._decompress():
                break
            count = min(offset - self._position, len(self._ready))
            self._ready = self._ready[count:]
            self._position += count
        return self._position

    def tell(self) -> int:
        return self._position

    def _decompress(self) -> bool:
        """Decompress some bytes, if only those of a header. False at the end of the last frame."""
        import zstandard

        data = self._rest or self._stream.read(_CHUNK_BYTES)
        self._rest = b""
        if not data:
            if self._frame is None:
                return False
            raise EOFError(
                f"the compressed file {self._path} ends before the end of its last frame; "
                "it was cut short, or is not yet whole"
            )
        if self._frame is None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(data))
        except self._failure as error:
            raise OSError(f"the compressed file is damaged: {error}") from error
        if self._frame.eof:
            self._rest, self._frame = self._frame.unused_data, None
        return True
