"""Storage in memory that outlives every simulated process, and each process's faulty view of it."""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from minirt.storage.store import ObjectStore
from minirt.testing.faults import INJECTED


class Gate(Protocol):
    """What stands between a process and the outside world: it may delay, fail or end the process.

    An operation that `before` lets pass has its effect; whether the process learns of it is up to
    `after`.
    """

    def unexpected(self, action: str) -> None:
        """Called ahead of all, where an error is not taken for one of storage."""

    def before(self, action: str) -> None: ...

    def after(self, action: str) -> None: ...


class OpenGate:
    """A gate that lets everything pass."""

    def before(self, action: str) -> None:
        return None

    def after(self, action: str) -> None:
        return None

    def unexpected(self, action: str) -> None:
        return None


class Disk:
    """What is durable. An object is there as a whole once it was written, and never in part."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.bytes_max: int | None = None
        """How many bytes there is room for; None for no limit."""
        self.on_create: Callable[[str], None] = _ignore
        """Told the path of each object that `create` has stored."""

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store an object. Raises OSError if there is no room."""
        data = b"".join(chunks)
        growth = len(data) - len(self.objects.get(path, b""))
        if self.bytes_max is not None and self.bytes + growth > self.bytes_max:
            raise OSError(errno.ENOSPC, f"{INJECTED}: no space left for {path}")
        self.objects[path] = data

    @property
    def bytes(self) -> int:
        """What is stored in all."""
        return sum(map(len, self.objects.values()))


class Disks(defaultdict[str, Disk]):
    """All disks by URL; each is empty at first."""

    def __init__(self) -> None:
        super().__init__(Disk)


class SimulatedStore(ObjectStore):
    """A process's view of what is stored at a URL."""

    def __init__(self, url: str, disks: Disks, gate: Gate) -> None:
        # An operation that fails is not tried again: all that depends on it is to be seen to fail.
        super().__init__(url, objects=SimulatedObjects(url, disks[url], gate), pauses_s=())
        self._disks = disks
        self._gate = gate

    def read(self, path: str) -> bytes:
        self._gate.unexpected(f"read {path}")
        return super().read(path)

    def write(self, path: str, data: bytes | Iterable[bytes]) -> None:
        self._gate.unexpected(f"write {path}")
        super().write(path, data)

    def create(self, path: str, data: bytes | Iterable[bytes]) -> bool:
        self._gate.unexpected(f"create {path}")
        return super().create(path, data)

    def at(self, url: str) -> SimulatedStore:
        return SimulatedStore(url, self._disks, self._gate)


class SimulatedObjects:
    """A process's view of a disk: an implementation of `minirt.storage.objects.Objects`."""

    def __init__(self, root: str, disk: Disk, gate: Gate) -> None:
        self.root = root
        self._disk = disk
        self._gate = gate

    def read(self, path: str) -> bytes:
        self._gate.before(f"read {path}")
        return self._existing(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self._gate.before(f"write {path}")
        self._disk.put(path, chunks)
        self._gate.after(f"write {path}")

    def create(self, path: str, chunks: Iterable[bytes]) -> bool:
        self._gate.before(f"create {path}")
        created = path not in self._disk.objects
        if created:
            self._disk.put(path, chunks)
            self._disk.on_create(path)
        self._gate.after(f"create {path}")
        return created

    def delete(self, path: str) -> None:
        self._gate.before(f"delete {path}")
        self._disk.objects.pop(path, None)
        self._gate.after(f"delete {path}")

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def sizes(self, prefix: str) -> dict[str, int]:
        self._gate.before(f"list {prefix}")
        folder = f"{prefix}/" if prefix else ""
        objects = self._disk.objects
        return {path: len(objects[path]) for path in sorted(objects) if path.startswith(folder)}

    def size(self, path: str) -> int:
        self._gate.before(f"look at {path}")
        return len(self._existing(path))

    def sweep(
        self,
        older_than_s: float,
        is_own: Callable[[str], bool],
        is_abandoned: Callable[[str], bool],
    ) -> None:
        """Nothing is ever half written here."""

    def _existing(self, path: str) -> bytes:
        if path not in self._disk.objects:
            raise FileNotFoundError(path)
        return self._disk.objects[path]


def _ignore(path: str) -> None:
    return None
