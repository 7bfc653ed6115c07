"""Where everything of a checkpoint storage lies: the paths of manifests, claims and snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterable

from minirt.errors import CorruptCheckpointError
from minirt.protocol.manifest import GenerationClaim, ManifestKey
from minirt.protocol.part_paths import file_of


class CheckpointPaths:
    """Every path in a checkpoint storage, relative to its root. Nothing else spells or parses them."""

    GENERATIONS = "generations/"
    MANIFESTS = "manifests/"
    PROBE = "generations/probe"
    IDENTITY = "generations/identity"
    HISTORY = "history/"
    EVENTS = "events/"
    STAGED = "staged/"
    """What sinks keep there until it is committed; they name it themselves."""
    LOAD = "load/"

    _FOLDERS = frozenset({GENERATIONS, MANIFESTS, HISTORY, EVENTS, STAGED, LOAD})
    _IN_FLIGHT = ".in-flight"
    _KEY = r"chk-(\d{8,})-g(\d{8,})"
    _CLAIM = re.compile(r"generations/(\d{8,})\.claim")
    _BASE = re.compile(rf"generations/(\d{{8,}})\.from-(?:nothing|{_KEY})")
    _LEASE = re.compile(r"generations/(\d{8,})\.lease")
    _MANIFEST = re.compile(rf"manifests/{_KEY}\.manifest")
    _FOLDER = re.compile(rf"{_KEY}/?")
    _FILE = re.compile(rf"{_KEY}/.+")
    _ENTRIES = re.compile(r"(?:history|events|load)/(\d{10,})-g(\d{8,})\.entries")

    @staticmethod
    def claim(generation: int) -> str:
        return f"generations/{generation:08}.claim"

    @staticmethod
    def base(generation: int, base: ManifestKey | None) -> str:
        """The base is part of the name: one listing tells the bases of all generations."""
        origin = "nothing" if base is None else CheckpointPaths._name(base)
        return f"generations/{generation:08}.from-{origin}"

    @staticmethod
    def lease(generation: int) -> str:
        """Each generation has its own: who was replaced and does not know it writes over nobody's."""
        return f"generations/{generation:08}.lease"

    @staticmethod
    def manifest(key: ManifestKey) -> str:
        return f"manifests/{CheckpointPaths._name(key)}.manifest"

    @staticmethod
    def drained(key: ManifestKey) -> str:
        """Says that the drain which took this checkpoint is over."""
        return f"manifests/{CheckpointPaths._name(key)}.drained"

    @staticmethod
    def folder(key: ManifestKey) -> str:
        """Where the snapshots of a checkpoint are."""
        return f"{CheckpointPaths._name(key)}/"

    @staticmethod
    def snapshot(key: ManifestKey, vertex: int, subtask: int) -> str:
        return f"{CheckpointPaths._name(key)}/v{vertex}-s{subtask}.part"

    @staticmethod
    def in_flight(key: ManifestKey, vertex: int, subtask: int) -> str:
        return f"{CheckpointPaths._name(key)}/v{vertex}-s{subtask}{CheckpointPaths._IN_FLIGHT}"

    @staticmethod
    def trace(key: ManifestKey) -> str:
        """What the checkpoint did; it may not exist."""
        return f"{CheckpointPaths._name(key)}/trace"

    @staticmethod
    def is_in_flight(path: str) -> bool:
        """Whether in-flight data is stored there; also for paths that are not relative."""
        return file_of(path).endswith(CheckpointPaths._IN_FLIGHT)

    @staticmethod
    def entries(folder: str, first: int, generation: int) -> str:
        """A run of entries in HISTORY, EVENTS or LOAD, of which the first is the `first`-th ever."""
        return f"{folder}{first:010}-g{generation:08}.entries"

    @staticmethod
    def parse_manifest(path: str) -> ManifestKey | None:
        return _key(CheckpointPaths._MANIFEST.fullmatch(path))

    @staticmethod
    def parse_folder(path: str) -> ManifestKey | None:
        return _key(CheckpointPaths._FOLDER.fullmatch(path))

    @staticmethod
    def is_own_folder(name: str) -> bool:
        """Return True if minirt makes a folder of this name in the root of a checkpoint storage."""
        return f"{name}/" in CheckpointPaths._FOLDERS or bool(
            CheckpointPaths._FOLDER.fullmatch(name)
        )

    @staticmethod
    def parse_file(path: str) -> ManifestKey | None:
        """The checkpoint whose folder the file is in."""
        return _key(CheckpointPaths._FILE.fullmatch(path))

    @staticmethod
    def parse_lease(path: str) -> int | None:
        """The generation whose lease that is."""
        match = CheckpointPaths._LEASE.fullmatch(path)
        return int(match[1]) if match else None

    @staticmethod
    def parse_entries(path: str) -> tuple[int, int] | None:
        """The number of the run's first entry, and its generation."""
        match = CheckpointPaths._ENTRIES.fullmatch(path)
        return (int(match[1]), int(match[2])) if match else None

    @staticmethod
    def parse_claims(paths: Iterable[str]) -> list[GenerationClaim]:
        """The claims that a listing of the generations shows, oldest first."""
        claims: dict[int, GenerationClaim] = {}
        for path in sorted(paths):
            if match := CheckpointPaths._CLAIM.fullmatch(path):
                claims.setdefault(int(match[1]), GenerationClaim(int(match[1])))
            elif match := CheckpointPaths._BASE.fullmatch(path):
                base = ManifestKey(int(match[2]), int(match[3])) if match[2] else None
                if base is not None and base.generation >= int(match[1]):
                    raise CorruptCheckpointError(
                        "a generation cannot restore from a later one", path
                    )
                claims[int(match[1])] = GenerationClaim(int(match[1]), base, resolved=True)
        return [claims[generation] for generation in sorted(claims)]

    @staticmethod
    def _name(key: ManifestKey) -> str:
        return f"chk-{key.checkpoint_id:08}-g{key.generation:08}"


def _key(match: re.Match[str] | None) -> ManifestKey | None:
    return ManifestKey(int(match[1]), int(match[2])) if match else None
