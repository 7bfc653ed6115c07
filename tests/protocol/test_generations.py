"""Every interleaving of coordinators that replace each other: commits never contradict.

The coordinators here follow the steps that `minirt.protocol.manifest` describes, one storage operation
each, with its real decisions. Any of them may stop for ever or for a while after any step, so each is a
zombie in some interleaving. What must hold: of two committed manifests one builds on the other, and
whoever starts next builds on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.cleanup import plan_cleanup
from minirt.protocol.manifest import (
    GenerationClaim,
    ManifestKey,
    ManifestSummary,
    choose_restore_point,
    next_checkpoint_id,
)

Choice = Callable[[Iterable[ManifestKey], Iterable[GenerationClaim]], ManifestKey | None]


@dataclass(frozen=True)
class Rules:
    """How coordinators behave; the defaults are right, tests plant mistakes."""

    check_after_manifest: bool = True
    check_after_resolve: bool = True
    list_after_claim: bool = True
    choose: Choice = choose_restore_point
    checkpoints: int = 1


@dataclass(frozen=True)
class Stored:
    """What is in storage, and which manifests had their output committed."""

    claims: frozenset[GenerationClaim] = frozenset()
    manifests: frozenset[ManifestKey] = frozenset()
    ancestry: frozenset[tuple[ManifestKey, ManifestKey | None]] = frozenset()
    """Each manifest ever created, with the one that its coordinator built it on."""
    committed: frozenset[ManifestKey] = frozenset()


@dataclass(frozen=True)
class Coordinator:
    step: str = "claim"
    generation: int = 0
    listed: frozenset[ManifestKey] = frozenset()
    claims: frozenset[GenerationClaim] = frozenset()
    newest: ManifestKey | None = None
    next_id: int = 0
    completed: int = 0


World = tuple[Stored, tuple[Coordinator, ...]]


def advance(rules: Rules, stored: Stored, me: Coordinator) -> tuple[Stored, Coordinator]:
    """One storage operation of one coordinator."""
    match me.step:
        case "claim":
            generation = 1 + max((claim.generation for claim in stored.claims), default=0)
            stored = replace(stored, claims=stored.claims | {GenerationClaim(generation)})
            step = "list manifests" if rules.list_after_claim else "list claims"
            return stored, replace(me, step=step, generation=generation)
        case "list manifests":
            step = "list claims" if rules.list_after_claim else "claim"
            return stored, replace(me, step=step, listed=stored.manifests)
        case "list claims":
            base = rules.choose(me.listed, stored.claims)
            next_id = next_checkpoint_id(me.listed, stored.claims)
            return stored, replace(
                me, step="resolve", claims=stored.claims, newest=base, next_id=next_id
            )
        case "resolve" if me.newest is not None and me.newest.generation > me.generation:
            return stored, replace(me, step="stopped")
        case "resolve":
            mine = GenerationClaim(me.generation, me.newest, resolved=True)
            claims = stored.claims - {GenerationClaim(me.generation)} | {mine}
            step = "check" if rules.check_after_resolve else "commit"
            me = replace(
                me, step=step, claims=me.claims - {GenerationClaim(me.generation)} | {mine}
            )
            return replace(stored, claims=claims), me
        case "check":
            replaced = any(claim.generation > me.generation for claim in stored.claims)
            return stored, replace(me, step="stopped" if replaced else "commit")
        case "commit":
            if me.newest is not None:
                stored = replace(stored, committed=stored.committed | {me.newest})
            return stored, replace(me, step="clean up" if me.completed else "create manifest")
        case "clean up":
            summaries = [ManifestSummary(key, frozenset()) for key in sorted(me.listed)]
            plan = plan_cleanup(summaries, sorted_claims(me.claims), [], retain=1)
            gone = frozenset(plan.manifests_to_delete)
            done = me.completed == rules.checkpoints
            me = replace(me, step="stopped" if done else "create manifest", listed=me.listed - gone)
            return replace(stored, manifests=stored.manifests - gone), me
        case "create manifest":
            key = ManifestKey(me.next_id, me.generation)
            stored = replace(
                stored,
                manifests=stored.manifests | {key},
                ancestry=stored.ancestry | {(key, me.newest)},
            )
            return stored, replace(
                me,
                step="check" if rules.check_after_manifest else "commit",
                newest=key,
                listed=me.listed | {key},
                next_id=me.next_id + 1,
                completed=me.completed + 1,
            )
    raise AssertionError(me.step)


def sorted_claims(claims: Iterable[GenerationClaim]) -> list[GenerationClaim]:
    return sorted(claims, key=lambda claim: claim.generation)


def line_of(stored: Stored, key: ManifestKey | None) -> set[ManifestKey]:
    """The manifest and all that it builds on."""
    parents = dict(stored.ancestry)
    line = set()
    while key is not None:
        line.add(key)
        key = parents[key]
    return line


def contradiction(rules: Rules, stored: Stored) -> str | None:
    """What is wrong if the job were restarted in this state; None if all is well."""
    for key in stored.committed:
        others = {k for k in stored.committed if k not in line_of(stored, key)}
        if any(key not in line_of(stored, other) for other in others):
            return f"{key} and one of {others} are committed, and neither builds on the other"
    restart = rules.choose(stored.manifests, sorted_claims(stored.claims))
    lost = stored.committed - line_of(stored, restart)
    return f"a restart builds on {restart}, but {lost} are committed" if lost else None


def explore(rules: Rules, coordinators: int) -> tuple[int, str | None]:
    """Visit every reachable state; how many there are, and the first contradiction."""
    first = Coordinator("claim" if rules.list_after_claim else "list manifests")
    start: World = (Stored(), (first,) * coordinators)
    seen: set[World] = {start}
    frontier = [start]
    checked: dict[Stored, str | None] = {}
    while frontier:
        stored, members = frontier.pop()
        if stored not in checked:
            checked[stored] = contradiction(rules, stored)
        if checked[stored] is not None:
            return len(seen), checked[stored]
        for index, member in enumerate(members):
            # Coordinators that have not begun are alike: let the first of them begin.
            if member.step == "stopped" or member in members[:index]:
                continue
            after, moved = advance(rules, stored, member)
            world = (after, (*members[:index], moved, *members[index + 1 :]))
            if world not in seen:
                seen.add(world)
                frontier.append(world)
    return len(seen), None


def test_two_coordinators_never_commit_contradicting_histories() -> None:
    states, wrong = explore(Rules(checkpoints=3), coordinators=2)
    assert wrong is None
    assert states > 500


def test_three_coordinators_never_commit_contradicting_histories() -> None:
    states, wrong = explore(Rules(checkpoints=2), coordinators=3)
    assert wrong is None
    assert states > 20_000


def newest_of_all(
    manifests: Iterable[ManifestKey], claims: Iterable[GenerationClaim]
) -> ManifestKey | None:
    return max(manifests, default=None)


def disowned_by_any_claim(
    manifests: Iterable[ManifestKey], claims: Iterable[GenerationClaim]
) -> ManifestKey | None:
    """An orphan is what any later resolved claim did not build on: plausible, and wrong."""

    def disowned(key: ManifestKey) -> bool:
        return any(
            claim.resolved
            and claim.generation > key.generation
            and (claim.base is None or claim.base.checkpoint_id < key.checkpoint_id)
            for claim in claims
        )

    return max((key for key in manifests if not disowned(key)), default=None)


@pytest.mark.parametrize(
    ("mistake", "coordinators"),
    [
        (Rules(check_after_manifest=False, checkpoints=2), 2),
        (Rules(list_after_claim=False, checkpoints=2), 2),
        (Rules(check_after_resolve=False), 3),
        (Rules(choose=newest_of_all), 3),
        (Rules(choose=disowned_by_any_claim), 3),
    ],
    ids=[
        "no check after the manifest",
        "listing before the claim",
        "no check after resolving",
        "orphans count",
        "any later claim disowns",
    ],
)
def test_a_planted_mistake_is_caught(mistake: Rules, coordinators: int) -> None:
    _, wrong = explore(mistake, coordinators)
    assert wrong is not None


@given(st.lists(st.integers(0, 4), min_size=30, max_size=120), st.integers(1, 3))
def test_five_coordinators_in_random_order_never_contradict(
    schedule: list[int], checkpoints: int
) -> None:
    rules = Rules(checkpoints=checkpoints)
    stored, members = Stored(), [Coordinator()] * 5
    for index in schedule:
        if members[index].step != "stopped":
            stored, members[index] = advance(rules, stored, members[index])
            assert contradiction(rules, stored) is None
