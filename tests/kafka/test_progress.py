"""How far a partition is, compared with what a checkpoint has read of it: over drawn logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import minirt as rt
from minirt_connectors.kafka import progress as module
from minirt_connectors.kafka.progress import LastRecord, PartitionProgress


@dataclass(frozen=True)
class Message:
    """A record as the client gives it; `word` tells logs apart."""

    at: int
    word: bytes | None
    ms: int = 5

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self.word

    def timestamp(self) -> tuple[int, int]:
        return (1, self.ms)


def read_on(log: list[Message], next: int, last: Any, accept: Any = ()) -> list[int]:
    """The offsets that a reader gives out which goes on in a log."""
    known = None if last is None else LastRecord(*last)
    progress = PartitionProgress("source", "partition 0 of 't'", next, known, accept)
    high = log[-1].at + 1 if log else 0
    low = log[0].at if log else 0
    begin = progress.begin(low, high)
    assert begin is not None
    messages = [one for one in log if one.at >= begin]
    cut = len(messages) // 2
    given_out = progress.new(messages[:cut]) + progress.new(messages[cut:])
    return [one.at for one in given_out]


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORTER_FOR_S", -1.0)


LENGTHS = st.integers(1, 12)


def log_of(count: int, word: bytes, start: int = 0) -> list[Message]:
    return [Message(at, b"%b%d" % (word, at)) for at in range(start, start + count)]


@given(LENGTHS, LENGTHS, st.data())
def test_a_log_that_went_back_is_refused_however_far_it_has_grown(
    read: int, grown: int, data: st.DataObject
) -> None:
    """Only where nothing of what was read is lost, nothing is wrong."""
    before = log_of(read, b"old")
    kept = data.draw(st.integers(0, read))
    after = before[:kept] + log_of(grown, b"new", kept)
    last = LastRecord.of(before[-1]).to_plain()
    if kept == read:
        assert read_on(after, read, last) == list(range(read, read + grown))
        return
    with pytest.raises(rt.SourceChangedError, match="partition 0"):
        read_on(after, read, last)
    place = min(read, len(after))
    assert read_on(after, read, last, ("behind",)) == list(range(place, len(after)))


@given(LENGTHS, LENGTHS, st.data())
def test_compaction_retention_and_transactions_are_no_change(
    read: int, more: int, data: st.DataObject
) -> None:
    """Records vanish out of a log, or are none: offsets have gaps."""
    whole = log_of(read + more, b"a")
    left = data.draw(st.lists(st.sampled_from(whole), unique=True, min_size=1))
    left = sorted({*left, whole[-1]}, key=Message.offset)
    last = LastRecord.of(whole[read - 1]).to_plain()
    assert read_on(left, read, last) == [one.at for one in left if one.at >= read]


@given(LENGTHS, LENGTHS)
def test_what_nothing_is_known_of_is_taken_as_it_is(read: int, grown: int) -> None:
    """Offsets of older versions hold no record; of these only the end can be compared."""
    assume(grown >= read)
    assert read_on(log_of(grown, b"new"), read, None) == list(range(read, grown))


@given(st.binary() | st.none(), st.binary() | st.none(), st.integers(0, 3), st.integers(0, 3))
def test_records_of_other_values_or_times_are_others(
    one: bytes | None, other: bytes | None, at: int, then: int
) -> None:
    first, second = LastRecord.of(Message(7, one, at)), LastRecord.of(Message(7, other, then))
    assert (first == second) == ((one, at) == (other, then))
