"""What survives every crash: stored objects, and the outside world behind the sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.testing.exploration.fingerprint import fingerprint
from minirt.testing.sink import TransactionalSink
from minirt.testing.storage import Disk, SimulatedObjects


@dataclass(frozen=True, slots=True)
class Outside:
    """The outside world behind one sink."""

    pending: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    committed: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Durable:
    """All that is durable at some moment, or all that one event adds to it."""

    objects: Mapping[str, bytes]
    outside: tuple[Outside, ...]


class Storage:
    """Numbers what was ever durable; the real objects work on one of these at a time."""

    def __init__(self, sinks: Sequence[TransactionalSink]) -> None:
        self.disk = Disk()
        self.objects = SimulatedObjects("simulated://", self.disk, _OpenGate())
        self._sinks = sinks
        self._known: list[Durable] = []
        self._numbers: dict[bytes, int] = {}
        self._merged: dict[tuple[int, int], int] = {}
        # The job's identity is there from the beginning, or each visit to a state would make another one.
        objects = {CheckpointPaths.IDENTITY: b"explored"}
        self.empty = self._number(Durable(objects, tuple(Outside() for _ in sinks)))

    def __getitem__(self, number: int) -> Durable:
        return self._known[number]

    def load(self, number: int) -> None:
        """Let storage and sinks be as they were then."""
        durable = self._known[number]
        self.disk.objects = dict(durable.objects)
        for sink, outside in zip(self._sinks, durable.outside, strict=True):
            sink.load(outside.pending, outside.committed)

    def save(self) -> int:
        """The number of what is durable now.

        It leaves out who claimed a generation, and when: that is written down for people only.
        """
        objects = {
            path: b"" if path.endswith(".claim") else self.disk.objects[path]
            for path in sorted(self.disk.objects)
        }
        outside = tuple(
            Outside(dict(sorted(sink.pending.items())), sink.committed) for sink in self._sinks
        )
        return self._number(Durable(objects, outside))

    def merged(self, number: int, added: int) -> int:
        """What is durable once a worker has added something, which is new by its name."""
        known = self._merged.get((number, added))
        if known is None:
            self.load(number)
            more = self._known[added]
            self.disk.objects |= more.objects
            for sink, outside in zip(self._sinks, more.outside, strict=True):
                sink.load({**sink.pending, **outside.pending}, sink.committed)
            known = self._merged[number, added] = self.save()
        return known

    def watch(self, on_create: Callable[[str], None]) -> None:
        """Have the path told of each object that is created, once it is there."""
        self.disk.on_create = on_create

    def _number(self, durable: Durable) -> int:
        number = self._numbers.setdefault(fingerprint(durable), len(self._known))
        if number == len(self._known):
            self._known.append(durable)
        return number


class _OpenGate:
    """Storage that never fails: crashes fall between operations, not into them."""

    def unexpected(self, action: str) -> None: ...

    def before(self, action: str) -> None: ...

    def after(self, action: str) -> None: ...
