"""Which checkpoints and files may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import (
    GenerationClaim,
    ManifestKey,
    ManifestSummary,
    restore_candidates,
)


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """What to delete: first the manifests, so that none ever refers to a file that is gone."""

    manifests_to_delete: tuple[ManifestKey, ...]
    files_to_delete: tuple[str, ...]


def plan_cleanup(
    manifests: Sequence[ManifestSummary],
    claims: Sequence[GenerationClaim],
    stored_paths: Iterable[str],
    *,
    retain: int,
    active: Collection[ManifestKey] = (),
    unneeded: Collection[str] = (),
) -> CleanupPlan:
    """What may go when the newest `retain` checkpoints that count, and all pinned ones, are kept.

    A file stays if a kept manifest refers to it, and if its checkpoint may still be in progress: it is
    in `active`, or newer than all kept ones and not of a generation that has been replaced. Paths that
    minirt does not know stay, and everything does as long as there is no checkpoint that counts. What is
    `unneeded` goes in any case, unless a kept manifest refers to it or its checkpoint is `active`.
    """
    ages = restore_candidates((m.key for m in manifests if not m.pinned), claims)
    newest = ages[: max(1, retain)]
    kept = [m for m in manifests if m.pinned or m.key in newest or not ages]
    kept_keys = {m.key for m in kept}
    traces = map(CheckpointPaths.trace, kept_keys)
    referenced = frozenset[str](traces).union(*(m.paths for m in kept))
    current = max((claim.generation for claim in claims if claim.resolved), default=0)

    def may_go(path: str) -> bool:
        key = CheckpointPaths.parse_file(path)
        if path in referenced or key in active:
            return False
        if path in unneeded:
            return True
        if key is None or not newest:
            return False
        return key.checkpoint_id <= newest[0].checkpoint_id or key.generation < current

    return CleanupPlan(
        tuple(sorted(m.key for m in manifests if m.key not in kept_keys)),
        tuple(sorted(path for path in stored_paths if may_go(path))),
    )


@dataclass(frozen=True, slots=True)
class RecordsPlan:
    """What becomes of the records of old generations.

    Create `disowning` first, if there is one; then delete `outdated` in this order, one after the other.
    """

    disowning: str | None = None
    outdated: tuple[str, ...] = ()


def plan_records(stored_paths: Iterable[str], manifests: Iterable[ManifestKey]) -> RecordsPlan:
    """Plan which claims and bases of generations go, as no decision needs them any more.

    The newest claim stays, and of the line of the newest generation that is resolved each base down to the
    oldest manifest: these tell which manifests count. The generation below says from then on that it came
    from nothing: so a manifest that a replaced coordinator of a still older one stores later counts for
    nothing, as it would with all records. Claims go oldest first: a coordinator that was replaced finds
    either its successor's claim, or its own claim gone.
    """
    paths = {path for path in stored_paths if path.startswith(CheckpointPaths.GENERATIONS)}
    claims = CheckpointPaths.parse_claims(paths)
    if not claims:
        return RecordsPlan()
    keys = list(manifests)
    bases = {claim.generation: claim.base for claim in claims if claim.resolved}
    line = _line_of_the_newest(bases, min((key.generation for key in keys), default=0))
    needed = set(line)
    highest_id = max((key.checkpoint_id for key in keys), default=0)
    # Of bases that nothing else needs, one with the highest id keeps ids from being given twice.
    by_id = {base.checkpoint_id: generation for generation, base in bases.items() if base}
    if by_id and max(by_id) > highest_id:
        needed.add(by_id[max(by_id)])
    last = bases[line[-1]] if line else None
    if last is not None and last.generation in needed:
        last = None  # The base with the highest id: it tells more than one from nothing.
    disowning = None
    if last is not None:
        needed.add(last.generation)
        disowning = CheckpointPaths.base(last.generation, None)
    outdated = []
    for claim in claims[:-1]:
        outdated.append(CheckpointPaths.claim(claim.generation))
        comes_from_nothing = last is not None and claim.generation == last.generation
        if claim.resolved and (
            claim.generation not in needed or (comes_from_nothing and claim.base)
        ):
            outdated.append(CheckpointPaths.base(claim.generation, claim.base))
    return RecordsPlan(
        None if disowning in paths else disowning,
        tuple(path for path in outdated if path in paths),
    )


def _line_of_the_newest(bases: Mapping[int, ManifestKey | None], floor: int) -> list[int]:
    """Return the generations from which the newest one descends, itself first, down to `floor`."""
    line: list[int] = []
    generation = max(bases, default=0)
    while generation in bases and (not line or generation > floor):
        line.append(generation)
        base = bases[generation]
        generation = 0 if base is None else base.generation
    return line


def outdated_leases(stored_paths: Iterable[str]) -> list[str]:
    """The leases of all generations but the newest one that has a lease: nobody reads them any more."""
    leased = ((CheckpointPaths.parse_lease(path), path) for path in stored_paths)
    leases = sorted((generation, path) for generation, path in leased if generation is not None)
    return [path for _, path in leases[:-1]]
