"""The newest messages of workers: bounded, numbered, with their fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from minirt.monitoring.log_lines import LINES_MAX, TEXT_MAX, WAITING_MAX, LineHandler, LogBook
from minirt.monitoring.logs import AddFields, log_fields


@pytest.fixture
def handler() -> LineHandler:
    kept = LineHandler()
    kept.addFilter(AddFields())
    return kept


@pytest.fixture
def logger(handler: LineHandler) -> Iterator[logging.Logger]:
    found = logging.getLogger("tests.log_lines")
    found.addHandler(handler)
    found.propagate = False
    yield found
    found.removeHandler(handler)
    found.propagate = True


def test_messages_have_the_fields_of_their_moment(
    handler: LineHandler, logger: logging.Logger
) -> None:
    with log_fields(operator="prices", subtask=3):
        logger.warning("no price for %s", "item")
    logger.error("outside")
    first, second = handler.take()
    assert (first.text, first.level, first.operator, first.subtask) == (
        *("no price for item", "WARNING"),
        *("prices", 3),
    )
    assert (second.operator, second.subtask) == (None, None)
    assert handler.take() == ()


def test_a_traceback_is_kept_and_long_texts_are_cut(
    handler: LineHandler, logger: logging.Logger
) -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        logger.exception("boom")
    logger.warning("x" * 10 * TEXT_MAX)
    failed, long = handler.take()
    assert "KeyError: 'lost'" in failed.text
    assert len(long.text) == TEXT_MAX + 4


def test_of_very_many_messages_the_newest_wait(
    handler: LineHandler, logger: logging.Logger
) -> None:
    for number in range(3 * WAITING_MAX):
        logger.warning("%d", number)
    taken = handler.take()
    assert [int(line.text) for line in taken] == [*range(2 * WAITING_MAX, 3 * WAITING_MAX)]


def test_a_message_that_cannot_be_formatted_harms_nobody(
    handler: LineHandler, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.warning("%d", "no number")
    assert handler.take() == ()


def test_the_book_tells_what_is_new_and_forgets_the_oldest(
    handler: LineHandler, logger: logging.Logger
) -> None:
    book = LogBook()
    for number in range(LINES_MAX + 10):
        logger.warning("%d", number)
        book.add(handler.take())
    total, lines = book.since(0)
    assert (total, len(lines), lines[0].text) == (LINES_MAX + 10, LINES_MAX, "10")
    assert [line.text for line in book.since(total - 2)[1]] == ["208", "209"]
    assert book.since(total) == (total, ())
    assert book.since(total + 5) == (total, ())
