"""Which files of failed checkpoints may go, and when."""

from __future__ import annotations

from dataclasses import replace

from minirt.protocol.leftovers import Leftovers
from minirt.protocol.manifest import InFlightRef, Reference, SnapshotRef
from tests.protocol.parts import SINK, SOURCE, declined, state_path, with_state


def test_a_file_that_later_snapshots_may_build_on_stays() -> None:
    leftovers = Leftovers(1)
    leftovers.on_part(with_state(1, SINK), failed=False)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_failed(1)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_part(with_state(2, SINK, state_path(1, SINK)), failed=False)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_failed(2)
    leftovers.on_part(with_state(3, SINK, state_path(2, SINK)), failed=False)
    assert leftovers.take_unneeded() == {state_path(1, SINK)}
    assert leftovers.take_unneeded() == frozenset()


def test_what_a_later_snapshot_does_without_stays_for_one_between_that_may_yet_complete() -> None:
    leftovers = Leftovers(1)
    leftovers.on_part(with_state(1, SINK), failed=False)
    leftovers.on_part(with_state(2, SINK, state_path(1, SINK)), failed=False)
    leftovers.on_failed(1)
    leftovers.on_part(with_state(3, SINK), failed=False)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_completed(2)
    assert leftovers.take_unneeded() == {state_path(1, SINK)}, "retention keeps what 2 refers to"


def test_each_subtask_is_judged_by_its_own_snapshots() -> None:
    leftovers = Leftovers(1)
    leftovers.on_part(with_state(1, SINK), failed=False)
    leftovers.on_part(with_state(1, SOURCE), failed=False)
    leftovers.on_failed(1)
    leftovers.on_part(with_state(2, SOURCE), failed=False)
    assert leftovers.take_unneeded() == {state_path(1, SOURCE)}


def test_a_part_that_comes_late_is_treated_like_the_others() -> None:
    leftovers = Leftovers(1)
    leftovers.on_failed(1)
    leftovers.on_part(with_state(1, SINK), failed=True)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_part(with_state(2, SINK), failed=False)
    assert leftovers.take_unneeded() == {state_path(1, SINK)}


def test_nobody_builds_on_in_flight_data_nor_on_what_was_declined() -> None:
    leftovers = Leftovers(7)
    captured = InFlightRef(SnapshotRef(1, 0, "in-flight", None, 10, 0), ())
    leftovers.on_part(replace(with_state(1, SINK), in_flight=captured), failed=False)
    leftovers.on_declined(declined(1, SOURCE))
    leftovers.on_failed(1)
    own = {f"chk-00000001-g00000007/v0-s0.{kind}" for kind in ("part", "in-flight")}
    assert leftovers.take_unneeded() == {"in-flight", *own}


def test_a_file_that_subtasks_share_stays_as_long_as_one_of_them_needs_it() -> None:
    leftovers = Leftovers(1)
    for place, subtask in enumerate((SOURCE, SINK)):
        shared = replace(with_state(1, subtask), snapshot=in_file(f"file@{10 * place}+10"))
        leftovers.on_part(shared, failed=False)
    leftovers.on_failed(1)
    leftovers.on_part(with_state(2, SOURCE), failed=False)
    assert leftovers.take_unneeded() == frozenset()
    building = replace(with_state(2, SINK), snapshot=in_file("own", "file@10+10"))
    leftovers.on_part(building, failed=False)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_failed(2)
    leftovers.on_part(with_state(3, SINK), failed=False)
    assert leftovers.take_unneeded() == {"file", "own"}
    assert leftovers.take_unneeded() == frozenset()


def in_file(path: str, *builds_on: str) -> SnapshotRef:
    references = tuple(Reference(older, ("table",)) for older in builds_on)
    return SnapshotRef(0, 0, path, None, 10, 0, references)


def test_what_completes_is_left_to_retention() -> None:
    leftovers = Leftovers(1)
    leftovers.on_part(with_state(1, SINK), failed=False)
    leftovers.on_failed(1)
    leftovers.on_part(with_state(2, SINK, state_path(1, SINK)), failed=False)
    leftovers.on_completed(2)
    leftovers.on_part(with_state(3, SINK), failed=False)
    assert leftovers.take_unneeded() == frozenset()


# Several checkpoints under way.


def test_a_file_of_a_later_one_that_failed_stays_when_an_earlier_one_completes() -> None:
    """Two subtasks share it: one does not need it any more, and the other builds on it."""
    shared, leftovers = state_path(2, SOURCE), Leftovers(1)
    for place, subtask in enumerate((SOURCE, SINK)):
        leftovers.on_part(with_state(1, subtask), failed=False)
        leftovers.on_part(with_state(2, subtask, path=f"{shared}@{place}+1"), failed=False)
    leftovers.on_failed(2)
    leftovers.on_part(with_state(3, SOURCE), failed=False)
    leftovers.on_completed(1)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_part(with_state(3, SINK, f"{shared}@1+1"), failed=False)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_completed(3)
    assert leftovers.take_unneeded() <= {shared}  # The manifest of 3 refers to it.


def test_parts_of_one_that_is_under_way_are_no_leftovers_of_another() -> None:
    leftovers = Leftovers(1)
    leftovers.on_part(with_state(1, SINK), failed=False)
    leftovers.on_part(with_state(2, SINK), failed=False)
    leftovers.on_failed(1)
    leftovers.on_part(with_state(3, SINK), failed=False)
    assert leftovers.take_unneeded() == {state_path(1, SINK)}
