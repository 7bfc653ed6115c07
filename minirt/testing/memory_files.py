"""Files in the memory of a simulated host: they outlive its processes."""

from __future__ import annotations

from collections.abc import Sequence

from minirt.runtime.input.service_log import LogFile


class MemoryFiles:
    """A `minirt.runtime.input.service_log.LogFiles`. At most `bytes_max` fit in."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self.files: dict[str, bytearray] = {}
        self.bytes_max = bytes_max
        self.open_files = 0

    def names(self) -> Sequence[str]:
        return list(self.files)

    def open(self, name: str, size: int = 0) -> LogFile:
        data = self.files.setdefault(name, bytearray())
        del data[size:]
        self.open_files += 1
        return _MemoryFile(self, data)

    def read(self, name: str) -> bytes:
        return bytes(self.files[name])

    def remove(self, name: str) -> None:
        self.files.pop(name, None)


class _MemoryFile:
    def __init__(self, folder: MemoryFiles, data: bytearray) -> None:
        self._folder = folder
        self._data = data

    def append(self, data: bytes) -> None:
        most = self._folder.bytes_max
        if most is not None and sum(map(len, self._folder.files.values())) + len(data) > most:
            raise OSError("the disk is full")
        self._data += data

    def close(self) -> None:
        """It stays as it is."""
        self._folder.open_files -= 1
