"""What a kill cost, from notes made up by hand."""

from __future__ import annotations

import pytest

from minirt.laboratory.notes import Note, Track
from minirt.laboratory.recovery import Line, Strike, curves, measure_kills, on_lines
from minirt.protocol.families import local_id


def notes(*rows: tuple[float, int] | tuple[float, int, int]) -> tuple[Note, ...]:
    return tuple(Note(row[0], row[1], {}, row[2] if len(row) > 2 else None) for row in rows)


def steady(start: float, seconds: float, per_s: int) -> list[tuple[float, int]]:
    """A note every tenth of a second."""
    return [(start + n / 10, per_s * n // 10) for n in range(1, int(seconds * 10) + 1)]


LATER = Track("sink-0-0", 1, notes(*steady(100, 7, 1000)[:50], (105.0, 5000, 8), (107.0, 7000)))
AFTER = Track("sink-0-0", 2, notes(*steady(108, 6, 1000)))


def test_a_generation_begins_with_what_its_checkpoint_holds():
    by_generation = curves([LATER, AFTER], {1: None, 2: 8})
    assert by_generation[1].base == 0
    assert by_generation[1].total == 7000
    assert by_generation[2].base == 5000
    assert by_generation[2].total == 11_000


def test_checkpoints_of_later_generations_build_on_the_earlier_ones():
    second = Track("sink-0-0", 2, notes((108.1, 100), (108.2, 300, 9)))
    third = Track("sink-0-0", 3, notes((110.0, 50)))
    by_generation = curves([LATER, second, third], {1: None, 2: 8, 3: 9})
    assert by_generation[3].base == 5300


def test_a_kill_costs_what_lies_between_the_checkpoint_and_it():
    [kill] = measure_kills([Strike(107.5, 1, ("a (1/1)",))], [LATER, AFTER], {1: None, 2: 8}, 100.0)
    assert kill.at_s == 7.5
    assert kill.restored_checkpoint == 8
    assert kill.processed_twice == 2000
    assert kill.first_record_s == pytest.approx(0.6)
    assert kill.first_new_record_s == pytest.approx(2.6)  # 2,000 once more, and one more note.
    assert kill.caught_up_s == pytest.approx(2.6)


def test_a_rate_that_is_not_reached_again_is_not_seen():
    slow = Track("sink-0-0", 2, notes(*steady(108, 6, 500)))
    [kill] = measure_kills([Strike(107.5, 1, ())], [LATER, slow], {1: None, 2: 8}, 100.0)
    assert kill.first_new_record_s is not None
    assert kill.caught_up_s is None


def test_a_generation_that_never_came_costs_no_one_knows_what():
    [kill] = measure_kills([Strike(107.5, 1, ())], [LATER], {1: None}, 100.0)
    assert (kill.first_record_s, kill.first_new_record_s, kill.processed_twice) == (
        None,
        None,
        None,
    )


def test_without_a_checkpoint_all_comes_again():
    [kill] = measure_kills([Strike(107.5, 1, ())], [LATER, AFTER], {1: None, 2: None}, 100.0)
    assert kill.restored_checkpoint is None
    assert kill.first_new_record_s is None  # 6,000 of 7,000 have come until the end.
    assert kill.processed_twice == 6000


def test_a_line_holds_what_its_sinks_had_at_their_local_snapshots():
    first, second = (local_id(1, number) for number in (4, 5))
    zero = Track("sink-0-0", 1, notes((101.0, 100, first), (102.0, 200, second), (103.0, 300)))
    one = Track("sink-0-1", 1, notes((101.5, 10, first), (103.0, 30)))
    lines = [Line(7, 1, {(2, 0): 4, (2, 1): 4}), Line(8, 1, {(2, 0): 5, (2, 1): 4, (0, 0): 9})]
    after = Track("sink-0-0", 2, notes((104.0, 5)))
    tracks = on_lines([zero, one, after], lines, [2])
    assert curves(tracks, {1: None, 2: 7})[2].base == 110
    assert curves(tracks, {1: None, 2: 8})[2].base == 210
    assert curves(tracks, {1: None, 2: 8})[1].total == 330


def test_a_job_is_taken_back_to_the_first_snapshot_that_it_went_on_from():
    strikes = [Strike(107.5, 1, ())]
    [kill] = measure_kills(strikes, [LATER, AFTER], {1: None, 2: 8}, 100.0, {8: 104.5})
    assert kill.rollback_s == 3.0
    [kill] = measure_kills(strikes, [LATER, AFTER], {1: None, 2: None}, 100.0, {8: 104.5})
    assert kill.rollback_s is None
