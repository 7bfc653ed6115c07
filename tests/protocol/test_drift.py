"""Who may read how far: the limits of drift groups."""

from __future__ import annotations

from minirt.protocol.drift import HOLDS_NOBODY, NOTHING_YET, DriftGroup, DriftLimits, Progress
from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import VertexEntry

A, B, C, OTHER = (SubtaskId(vertex, 0) for vertex in range(4))
GROUPS = [DriftGroup("g", 100, frozenset("abc")), DriftGroup("h", 7, frozenset("d"))]
VERTICES = [VertexEntry(id, (uid, "next"), uid, 1, 128) for id, uid in enumerate("abcd")]


def at(watermark: int) -> Progress:
    return Progress(watermark, complete=True)


class Limits:
    """The limits of a generation that runs; the newest that was told, by group."""

    def __init__(self, **progress: Progress) -> None:
        self.told: dict[str, int] = {}
        self.limits = DriftLimits(3, GROUPS, VERTICES)
        self.limits.on_running()
        for name, each in progress.items():
            self.tell({"a": A, "b": B, "c": C}[name], each)

    def tell(self, member: SubtaskId, progress: Progress) -> Limits:
        for command in self.limits.on_progress(member, progress):
            assert command.generation == 3
            self.told[command.group] = command.limit_ms
        return self


def test_the_slowest_decides() -> None:
    limits = Limits(a=at(1000), b=at(20), c=at(500))
    assert limits.told == {"g": 120}
    assert limits.tell(B, at(700)).told == {"g": 600}
    assert limits.tell(A, at(2000)).told == {"g": 600}


def test_groups_do_not_wait_for_each_other() -> None:
    limits = Limits(a=at(1000), b=at(1000), c=at(1000)).tell(OTHER, at(5))
    assert limits.told == {"g": 1100, "h": 12}


def test_who_is_idle_or_has_ended_holds_nobody() -> None:
    limits = Limits(a=at(1000), b=at(20), c=at(500))
    assert limits.tell(B, HOLDS_NOBODY).told == {"g": 600}
    assert limits.tell(C, HOLDS_NOBODY).told == {"g": 1100}


def test_who_comes_back_holds_the_others_again() -> None:
    limits = Limits(a=at(1000), b=HOLDS_NOBODY, c=HOLDS_NOBODY)
    assert limits.told == {"g": 1100}
    assert limits.tell(B, at(30)).told == {"g": 130}


def test_behind_one_that_has_brought_nothing_nobody_goes_further_than_from_the_first() -> None:
    """It may be far behind; what is known by now holds, and falls if another one is further behind."""
    limits = Limits(a=at(1000))
    assert limits.told == {"g": 1100}
    limits.tell(A, at(1100))
    assert limits.told == {"g": 1100}
    assert limits.tell(B, at(300)).told == {"g": 400}
    limits.tell(B, at(400))
    assert limits.told == {"g": 400}
    assert limits.tell(C, at(390)).told == {"g": 490}


def test_one_that_stays_silent_from_the_start_lets_the_others_go_once_it_is_idle() -> None:
    limits = Limits(a=at(1000), b=at(1100), c=NOTHING_YET)
    assert limits.told == {"g": 1100}
    limits.tell(A, at(1050))
    assert limits.told == {"g": 1100}
    assert limits.tell(C, HOLDS_NOBODY).told == {"g": 1150}


def test_a_new_split_of_one_holds_all_where_they_are() -> None:
    limits = Limits(a=at(1000), b=at(900), c=at(950))
    limits.tell(B, Progress(960, complete=False)).tell(C, at(1000))
    assert limits.told == {"g": 1000}
    assert limits.tell(B, at(200)).told == {"g": 300}


def test_nobody_is_told_before_all_run() -> None:
    limits = DriftLimits(1, GROUPS, VERTICES)
    assert not limits.on_progress(A, at(5))
    [command] = limits.on_running()
    assert (command.group, command.limit_ms) == ("g", 105)


def test_a_limit_that_stays_is_not_told_again() -> None:
    limits = DriftLimits(1, GROUPS, VERTICES)
    limits.on_running()
    assert limits.on_progress(A, at(5))
    assert not limits.on_progress(A, at(6))


def test_at_another_parallelism_all_subtasks_of_a_source_are_members() -> None:
    limits = DriftLimits(1, GROUPS[1:], [VertexEntry(3, ("d",), "d", 2, 128)])
    limits.on_running()
    first, second = SubtaskId(3, 0), SubtaskId(3, 1)
    [command] = limits.on_progress(first, at(5))
    assert command.limit_ms == 12
    [] = limits.on_progress(first, at(6))  # The other one may be far behind.
    [command] = limits.on_progress(second, at(9))
    assert command.limit_ms == 13
