"""Manifests as plain data, the line of checkpoints that count, paths, and plans for deletion."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import CorruptCheckpointError, ProtocolError
from minirt.protocol.barriers import Switch
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.cleanup import CleanupPlan, outdated_leases, plan_cleanup, plan_records
from minirt.protocol.manifest import (
    MANIFEST_VERSION,
    ChannelData,
    GenerationClaim,
    InFlightRef,
    Manifest,
    ManifestKey,
    ManifestSummary,
    Reference,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
    VertexEntry,
    choose_restore_point,
    next_checkpoint_id,
    next_generation,
    restore_candidates,
)
from minirt.protocol.stored_watermarks import LinkWatermarks, SubtaskWatermarks

OLDER = Reference("chk-1", ("sum\x1ftable",))

OPTIONAL = {"in_flight", "watermarks", "drain", "identity", "committed"}

MANIFEST = Manifest(
    version=MANIFEST_VERSION,
    job="delays",
    checkpoint_id=12,
    generation=3,
    mode="unaligned",
    kind="checkpoint",
    triggered_at=1000.0,
    completed_at=1002.5,
    vertices=(VertexEntry(0, ("in", "map"), "in > map", 2, 128),),
    snapshots=(
        SnapshotRef(0, 0, "chk-00000012-g00000003/v0-s0.part", None, 100, 7, (OLDER,)),
        SnapshotRef(0, 1, None, b"\x00inline", 50, 2**32 - 1),
    ),
    sink_handles=(SinkHandles("out", 12, 0, ({"file": "a", "more": [b"x", None, {1: 2.5}]},)),),
    stats=(
        SubtaskStats(
            *(0, 0, "map (1/2)", 0.1, 0.2, 0.3, 0.4, 0.5, 10, 20, 30, True),
            switches=(Switch("outputs", 1.5, "late"),),
        ),
    ),
    watermarks=(
        SubtaskWatermarks("map", 0, 9, (LinkWatermarks("in > map:0", "hash", 2, (9, None)),)),
    ),
)


def key(checkpoint_id: int, generation: int = 1) -> ManifestKey:
    return ManifestKey(checkpoint_id, generation)


def resolved(generation: int, base: ManifestKey | None) -> GenerationClaim:
    return GenerationClaim(generation, base, resolved=True)


class TestPlainForm:
    def test_a_manifest_survives_msgpack(self) -> None:
        packed = msgpack.packb(MANIFEST.to_plain())
        assert Manifest.from_plain(msgpack.unpackb(packed, strict_map_key=False), "p") == MANIFEST

    def test_duration_and_size_are_derived(self) -> None:
        assert (MANIFEST.duration_s, MANIFEST.bytes, MANIFEST.key) == (2.5, 150, key(12, 3))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 3}, "has version 3"),
            ({"version": 0}, "unknown manifest version 0"),
            ({"version": "1"}, r"Manifest\.version must be int, not str"),
            ({"job": b"delays"}, r"Manifest\.job must be str, not bytes"),
            ({"checkpoint_id": True}, r"checkpoint_id must be int, not bool"),
            ({"kind": "backup"}, "kind is 'backup', not one of checkpoint, final, savepoint"),
            ({"snapshots": None}, "snapshots must be a list, not NoneType"),
            ({"vertices": [{"id": 1}]}, r"vertices\[0\] lacks max_parallelism, name"),
        ],
    )
    def test_a_wrong_field_is_named_with_the_path(
        self, change: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(CorruptCheckpointError, match=message) as caught:
            Manifest.from_plain({**MANIFEST.to_plain(), **change}, "s3://b/m")
        assert caught.value.path == "s3://b/m"

    @pytest.mark.parametrize(
        ("parallelism", "most"), [(0, 128), (-1, 128), (129, 128), (10**9, 10**9)]
    )
    def test_parallelism_that_no_job_can_have_is_refused(self, parallelism: int, most: int) -> None:
        value = MANIFEST.to_plain()
        value["vertices"][0] |= {"parallelism": parallelism, "max_parallelism": most}
        with pytest.raises(CorruptCheckpointError, match=f"parallelism {parallelism} of .*: p$"):
            Manifest.from_plain(value, "p")

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        )
    )
    def test_foreign_objects_are_corrupt_manifests(self, value: object) -> None:
        with pytest.raises(CorruptCheckpointError):
            Manifest.from_plain(value, "p")

    @given(st.sampled_from(sorted(MANIFEST.to_plain().keys() - OPTIONAL)))
    def test_no_field_may_be_missing(self, field: str) -> None:
        value = MANIFEST.to_plain()
        del value[field]
        with pytest.raises(CorruptCheckpointError, match=field):
            Manifest.from_plain(value, "p")

    def test_a_manifest_from_before_a_field_existed_can_be_read(self) -> None:
        channel = ChannelData("a > b:0", "hash", 0, 1, 2, "out", 30, records=4)
        stored = SnapshotRef(0, 0, None, b"", 0, 0)
        manifest = replace(MANIFEST, in_flight=(InFlightRef(stored, (channel,)),))
        value = manifest.to_plain()
        assert Manifest.from_plain(value, "p") == manifest
        del value["in_flight"][0]["channels"][0]["records"]
        [captured] = Manifest.from_plain(value, "p").in_flight
        assert captured.channels == (replace(channel, records=None),)


class TestLineOfCheckpoints:
    def test_newest_is_chosen_without_any_claims(self) -> None:
        assert choose_restore_point([key(1), key(3), key(2)], []) == key(3)
        assert choose_restore_point([], []) is None

    def test_manifest_of_a_zombie_after_its_replacement_is_an_orphan(self) -> None:
        claims = [resolved(1, None), resolved(2, key(5))]
        keys = [key(4), key(5), key(6), key(6, 2), key(7, 2)]
        assert restore_candidates(keys, claims) == [key(7, 2), key(6, 2), key(5), key(4)]

    def test_orphan_does_not_count_before_the_successor_completes_any(self) -> None:
        claims = [resolved(1, None), resolved(2, key(5))]
        assert choose_restore_point([key(5), key(9)], claims) == key(5)

    def test_manifest_of_a_zombie_counts_while_its_successor_is_unresolved(self) -> None:
        claims = [resolved(1, None), GenerationClaim(2)]
        assert choose_restore_point([key(5), key(6)], claims) == key(6)

    def test_empty_start_leaves_everything_behind(self) -> None:
        claims = [resolved(1, None), resolved(2, None)]
        assert choose_restore_point([key(5)], claims) is None

    def test_skipped_generations_are_left_behind(self) -> None:
        claims = [resolved(1, None), resolved(2, key(5)), resolved(3, key(5))]
        assert restore_candidates([key(5), key(6, 2), key(6, 3)], claims) == [key(6, 3), key(5)]

    def test_zombie_that_resolves_late_does_not_disown_what_its_successor_restored(self) -> None:
        claims = [resolved(1, None), resolved(2, key(5)), resolved(3, key(6))]
        assert choose_restore_point([key(5), key(6), key(6, 2)], claims) == key(6)

    def test_lost_records_of_old_generations_disown_nothing(self) -> None:
        assert restore_candidates([key(3), key(5, 2)], [resolved(3, key(5, 2))]) == [
            key(5, 2),
            key(3),
        ]

    def test_generation_cannot_build_on_a_later_one(self) -> None:
        with pytest.raises(ProtocolError):
            resolved(2, key(5, 2))

    def test_next_ids_exceed_orphans_bases_and_unresolved_claims(self) -> None:
        claims = [resolved(2, key(9)), GenerationClaim(4)]
        assert next_checkpoint_id([key(7)], claims) == 10
        assert next_checkpoint_id([key(11)], claims) == 12
        assert next_checkpoint_id([], []) == 1
        assert (next_generation([key(7, 6)], claims), next_generation([], [])) == (7, 1)


class TestPaths:
    @given(st.builds(ManifestKey, st.integers(0, 10**10), st.integers(0, 10**9)))
    def test_paths_tell_what_they_are_of(self, of: ManifestKey) -> None:
        assert CheckpointPaths.parse_manifest(CheckpointPaths.manifest(of)) == of
        assert CheckpointPaths.parse_folder(CheckpointPaths.folder(of)) == of
        assert CheckpointPaths.parse_file(CheckpointPaths.snapshot(of, 1, 2)) == of
        assert CheckpointPaths.parse_file(CheckpointPaths.manifest(of)) is None
        claim = of.generation + 1
        listing = [CheckpointPaths.claim(claim), CheckpointPaths.base(claim, of)]
        assert CheckpointPaths.parse_claims(listing) == [resolved(claim, of)]

    def test_claims_are_read_from_a_listing(self) -> None:
        listing = [
            "generations/00000001.claim",
            "generations/00000001.from-nothing",
            "generations/00000002.claim",
            "generations/00000002.from-chk-00000007-g00000001",
            "generations/00000003.claim",
            "generations/notes.txt",
        ]
        expected = [resolved(1, None), resolved(2, key(7)), GenerationClaim(3)]
        assert CheckpointPaths.parse_claims(listing) == expected


def summary(
    of: ManifestKey, *paths: str, pinned: bool = False, own: bool = True
) -> ManifestSummary:
    own_path = (CheckpointPaths.snapshot(of, 0, 0),) if own else ()
    return ManifestSummary(of, frozenset((*own_path, *paths)), pinned)


def part(checkpoint_id: int, generation: int = 1) -> str:
    return CheckpointPaths.snapshot(key(checkpoint_id, generation), 0, 0)


class TestCleanup:
    def test_all_but_the_newest_go_with_their_files(self) -> None:
        manifests = [summary(key(n)) for n in (1, 2, 3, 4)]
        plan = plan_cleanup(
            manifests, [resolved(1, None)], [part(n) for n in (1, 2, 3, 4)], retain=2
        )
        assert plan == CleanupPlan((key(1), key(2)), (part(1), part(2)))

    def test_files_that_a_kept_manifest_refers_to_stay(self) -> None:
        manifests = [summary(key(1)), summary(key(2)), summary(key(3), part(1))]
        plan = plan_cleanup(manifests, [], [part(1), part(2), part(3)], retain=1)
        assert plan == CleanupPlan((key(1), key(2)), (part(2),))

    def test_savepoints_stay_and_do_not_count(self) -> None:
        manifests = [summary(key(1), pinned=True), summary(key(2)), summary(key(3), pinned=True)]
        plan = plan_cleanup(manifests, [], [part(1), part(2), part(3)], retain=1)
        assert plan == CleanupPlan((), ())

    def test_orphans_go(self) -> None:
        claims = [resolved(1, None), resolved(2, key(5))]
        manifests = [summary(key(5)), summary(key(6)), summary(key(7, 2))]
        plan = plan_cleanup(manifests, claims, [part(5), part(6), part(7, 2)], retain=3)
        assert plan == CleanupPlan((key(6),), (part(6),))

    def test_files_of_checkpoints_in_progress_stay(self) -> None:
        claims = [resolved(1, None), resolved(2, key(5))]
        manifests = [summary(key(8, 2))]
        stored = [part(6, 2), part(7, 2), part(8, 2), part(9, 2), part(9, 1)]
        plan = plan_cleanup(manifests, claims, stored, retain=1, active=[key(7, 2)])
        assert plan == CleanupPlan((), (part(6, 2), part(9, 1)))

    def test_unresolved_successor_does_not_cost_the_current_generation_its_files(self) -> None:
        claims = [resolved(1, None), GenerationClaim(2)]
        plan = plan_cleanup([summary(key(5))], claims, [part(5), part(6)], retain=1)
        assert plan == CleanupPlan((), ())

    def test_a_lease_goes_once_a_later_one_is_stored(self) -> None:
        claims = [resolved(1, None), resolved(2, None), resolved(3, None)]
        leases = [CheckpointPaths.lease(1), CheckpointPaths.lease(2)]
        for stored, expected in ((leases, (leases[0],)), (leases[1:], ())):
            unneeded = outdated_leases(stored)
            plan = plan_cleanup([], claims, stored, retain=1, unneeded=unneeded)
            assert plan.files_to_delete == expected

    def test_records_of_old_generations_go_and_the_line_of_the_newest_stays(self) -> None:
        claims = [(1, None), (2, key(5)), (3, key(7, 2)), (4, key(5)), (5, key(9, 4))]
        stored = [
            *(CheckpointPaths.claim(generation) for generation in range(1, 7)),
            *(CheckpointPaths.base(generation, base) for generation, base in claims),
            CheckpointPaths.IDENTITY,
            CheckpointPaths.lease(3),
        ]
        plan = plan_records(stored, [key(5), key(9, 4), key(10, 5)])
        assert plan.disowning is None
        assert plan.outdated == (
            CheckpointPaths.claim(1),
            CheckpointPaths.claim(2),
            CheckpointPaths.base(2, key(5)),
            CheckpointPaths.claim(3),
            CheckpointPaths.base(3, key(7, 2)),
            CheckpointPaths.claim(4),
            CheckpointPaths.claim(5),
        )

    def test_the_base_with_the_highest_id_stays(self) -> None:
        stored = [CheckpointPaths.base(2, key(90)), CheckpointPaths.base(3, key(4))]
        stored += [CheckpointPaths.claim(generation) for generation in (1, 2, 3)]
        assert plan_records(stored, [key(4)]).outdated == (
            CheckpointPaths.claim(1),
            CheckpointPaths.claim(2),
        )

    @given(st.data())
    def test_deleting_outdated_records_changes_no_decision(self, data: st.DataObject) -> None:
        """Any prefix of the deletions, as a crash leaves it; twice, as each start plans anew.

        Manifests may come of coordinators that were replaced and do not know it.
        """
        bases: dict[int, ManifestKey | None] = {}
        keys = [
            key(n, data.draw(st.integers(1, 8))) for n in range(1, data.draw(st.integers(1, 9)))
        ]
        newest = data.draw(st.integers(1, 9))
        for generation in range(1, newest + 1):
            older = [None, *(one for one in keys if one.generation < generation)]
            if data.draw(st.booleans()):
                bases[generation] = data.draw(st.sampled_from(older))
        kept = [one for one in keys if one.generation <= newest and data.draw(st.booleans())]
        stored = {CheckpointPaths.claim(generation) for generation in range(1, newest + 1)}
        stored |= {CheckpointPaths.base(generation, base) for generation, base in bases.items()}
        before = CheckpointPaths.parse_claims(stored)
        for _ in range(2):
            plan = plan_records(stored, kept)
            stored |= {plan.disowning} - {None}
            stored -= set(plan.outdated[: data.draw(st.integers(0, len(plan.outdated)))])
        after = CheckpointPaths.parse_claims(stored)
        assert next_checkpoint_id(kept, after) == next_checkpoint_id(kept, before)
        assert next_generation(kept, after) == next_generation(kept, before)
        late = [key(n, data.draw(st.integers(1, newest))) for n in range(10, 13)]
        current = [one for one in late if one.generation == newest or newest not in bases]
        zombies = [one for one in late if one not in current]
        resolved_lines = newest in bases and _is_whole(bases, newest)
        for more in (kept, [*kept, *zombies] if resolved_lines else kept):
            assert restore_candidates(more, after) == restore_candidates(more, before)
        for replaced in range(1, newest):  # It looks for its successor's claim, then for its own.
            successor, own = map(CheckpointPaths.claim, (replaced + 1, replaced))
            assert successor in stored or own not in stored

    def test_unknown_files_stay(self) -> None:
        stored = ["notes.txt", "manifests/chk-1.bak", "chk-final/x", "generations/00000001.claim"]
        assert plan_cleanup([summary(key(5))], [], stored, retain=1).files_to_delete == ()

    def test_nothing_goes_before_there_is_a_checkpoint_that_counts(self) -> None:
        claims = [resolved(1, None), resolved(2, None)]
        plan = plan_cleanup([summary(key(5))], claims, [part(5), part(6, 2)], retain=1)
        assert plan == CleanupPlan((), ())

    @given(
        st.lists(
            st.builds(
                lambda of, references, pinned: summary(
                    key(of), *(part(of - back) for back in references), pinned=pinned
                ),
                st.integers(4, 20),
                st.sets(st.integers(1, 3)),
                st.booleans(),
            ),
            unique_by=lambda m: m.key,
        ),
        st.integers(1, 4),
    )
    def test_what_is_kept_never_misses_a_file(
        self, manifests: list[ManifestSummary], retain: int
    ) -> None:
        stored = [part(n) for n in range(25)]
        plan = plan_cleanup(manifests, [], stored, retain=retain)
        kept = [m for m in manifests if m.key not in plan.manifests_to_delete]
        assert not any(m.paths & set(plan.files_to_delete) for m in kept)
        assert len([m for m in kept if not m.pinned]) == min(
            retain, len([m for m in manifests if not m.pinned])
        )


def test_every_class_of_a_manifest_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MANIFEST.snapshots[0].crc = 1  # type: ignore[misc]


def _is_whole(bases: Mapping[int, ManifestKey | None], newest: int) -> bool:
    """Tell whether no record of the line of a generation was lost."""
    generation: int | None = newest
    while generation is not None:
        if generation not in bases:
            return False
        base = bases[generation]
        generation = None if base is None else base.generation
    return True
