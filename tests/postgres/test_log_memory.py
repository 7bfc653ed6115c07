"""The log of a server compared with what a checkpoint has read of it: over drawn logs, without a server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minirt_connectors.postgres.log_memory import NONE_YET, LastTransaction, LogComparison
from minirt_connectors.postgres.pgoutput import Begin

STEP = 10
"""How long a transaction is in these logs."""


def log_of(count: int, at_ms: int, start: int = 0) -> list[Begin]:
    """Transactions of the same numbers and places in each log, which were committed at other times."""
    return [Begin(STEP * (1 + n), at_ms, 700 + n) for n in range(start, start + count)]


def complaints(log: list[Begin], last: LastTransaction, position: int, confirmed: int) -> list[str]:
    told: list[str] = []
    comparison = LogComparison(last, position, confirmed, told.append)
    for begin in log:
        if begin.commit_lsn >= confirmed:
            comparison.begins(begin)
    comparison.ends(log[-1].commit_lsn + STEP if log else 0)
    return told


@given(st.integers(0, 8), st.integers(0, 8), st.data())
def test_a_log_that_went_back_is_noticed_however_far_it_has_grown(
    read: int, grown: int, data: st.DataObject
) -> None:
    before = log_of(read, 1)
    kept = data.draw(st.integers(0, read))
    confirmed = data.draw(st.integers(0, kept)) * STEP
    last = LastTransaction.of(before[-1]) if before else NONE_YET
    position = (read + 1) * STEP
    after = before[:kept] + log_of(grown, 2, kept)
    told = complaints(after, last, position, confirmed)
    if kept == read:
        assert told == []
    elif kept + grown >= read:
        assert len(told) == 1
    # Else the log ends before the position, which `SlotReader` refuses.


@given(st.integers(1, 8), st.integers(0, 8), st.data())
def test_the_log_that_was_read_is_none_that_went_back(
    read: int, more: int, data: st.DataObject
) -> None:
    """A checkpoint that is older than the newest goes on, and so does a slot that was moved on."""
    log = log_of(read + more, 1)
    confirmed = data.draw(st.integers(0, read)) * STEP
    position = log[read - 1].commit_lsn + STEP
    assert complaints(log, LastTransaction.of(log[read - 1]), position, confirmed) == []


def test_a_transaction_that_nobody_has_read_ahead_of_the_position_is_noticed() -> None:
    [first, second] = log_of(2, 1)
    assert complaints([first, second], LastTransaction.of(first), second.commit_lsn + 1, 0)
    assert complaints([first], NONE_YET, first.commit_lsn + 1, 0)
    assert not complaints([first, second], LastTransaction.of(first), second.commit_lsn, 0)
