"""Messages of a slot, made byte by byte as the manual of PostgreSQL says, and the records they become."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from struct import pack
from typing import Any

import pytest

from minirt.errors import SourceDataError
from minirt_connectors.postgres.changes import ChangeDecoder
from minirt_connectors.postgres.pgoutput import (
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Missing,
    Relation,
    Truncate,
    Update,
    decode,
)

INT8, TEXT = 20, 25
UNCHANGED = object()
AT_MS = 1_700_000_000_123
AT = pack(">q", AT_MS * 1000 - 946_684_800_000_000)


def begin(commit_lsn: int, transaction: int = 7) -> bytes:
    return b"B" + pack(">q", commit_lsn) + AT + pack(">I", transaction)


def commit(commit_lsn: int, end_lsn: int) -> bytes:
    return b"C\0" + pack(">qq", commit_lsn, end_lsn) + AT


def relation(oid: int, table: str, identity: str, *columns: tuple[str, int, bool]) -> bytes:
    data = b"R" + pack(">I", oid) + b"public\0" + table.encode() + b"\0" + identity.encode()
    data += pack(">h", len(columns))
    for name, kind, key in columns:
        data += pack(">B", key) + name.encode() + b"\0" + pack(">Ii", kind, -1)
    return data


def row(*values: Any) -> bytes:
    data = pack(">h", len(values))
    for value in values:
        if value is None:
            data += b"n"
        elif value is UNCHANGED:
            data += b"u"
        else:
            data += b"t" + pack(">i", len(value.encode())) + value.encode()
    return data


def change(kind: str, oid: int, *parts: bytes) -> bytes:
    return kind.encode() + pack(">I", oid) + b"".join(parts)


def truncate(*oids: int) -> bytes:
    return b"T" + pack(">iB", len(oids), 0) + b"".join(pack(">I", oid) for oid in oids)


USERS = relation(1, "users", "d", ("id", INT8, True), ("name", TEXT, False), ("bio", TEXT, False))
NOTES = relation(2, "notes", "f", ("id", INT8, True), ("body", TEXT, True))

STREAM = [
    begin(100),
    USERS,
    change("I", 1, b"N", row("1", "Ann", None)),
    change("I", 1, b"N", row("2", "Bob", "long")),
    commit(100, 120),
    begin(150),
    change("U", 1, b"N", row("2", "Rob", UNCHANGED)),
    change("U", 1, b"K", row("1", None, None), b"N", row("9", "Ann", None)),
    NOTES,
    change("I", 2, b"N", row("5", "text")),
    truncate(1, 2),
    commit(150, 170),
    begin(170),
    change("D", 1, b"K", row("9", None, None)),
    commit(170, 190),
]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (begin(2**40), Begin(2**40, AT_MS, 7)),
        (commit(3, 4), Commit(4)),
        (NOTES, Relation(2, "public.notes", True, (Column("id", INT8, True), Column("body", TEXT, True)))),
        (STREAM[2], Insert(1, ("1", "Ann", None))),
        (STREAM[6], Update(1, None, False, ("2", "Rob", Missing.UNCHANGED))),
        (STREAM[7], Update(1, ("1", None, None), True, ("9", "Ann", None))),
        (change("U", 2, b"O", row("1"), b"N", row("2")), Update(2, ("1",), False, ("2",))),
        (STREAM[13], Delete(1, ("9", None, None), True)),
        (change("D", 2, b"O", row("1", "é")), Delete(2, ("1", "é"), False)),
        (truncate(1, 2), Truncate((1, 2))),
        (b"O" + pack(">q", 1) + b"elsewhere\0", None),
        (b"Y" + pack(">I", 1) + b"public\0mood\0", None),
    ],
)  # fmt: skip
def test_messages_are_what_the_manual_says(data: bytes, message: Any) -> None:
    assert decode(data) == message


@pytest.mark.parametrize(
    "data",
    [b"", b"?", b"I", STREAM[2][:-6], STREAM[2][:12], change("I", 1, b"X"), change("D", 1, b"N"),
     change("I", 1, b"N", pack(">h", 1), b"b")],
)  # fmt: skip
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(SourceDataError, match="no message of pgoutput"):
        decode(data)


def records_of(messages: Sequence[bytes], **options: Any) -> list[dict[str, Any]]:
    return ChangeDecoder(options.pop("keys", {}), (0, 0), **options).feed(messages)


def test_records_say_what_was_done_to_which_row_and_when() -> None:
    first, second, changed, moved, noted, *truncated, deleted = records_of(STREAM)
    assert first == {
        "operation": "insert", "table": "public.users", "key": {"id": 1}, "old": None,
        "new": {"id": 1, "name": "Ann", "bio": None}, "unchanged": [], "committed_at": AT_MS,
        "transaction": 7, "lsn": 100,
    }  # fmt: skip
    assert second["new"]["bio"] == "long"
    assert (changed["operation"], changed["old"]) == ("update", None)
    assert (changed["new"], changed["unchanged"]) == ({"id": 2, "name": "Rob"}, ["bio"])
    assert (moved["old"], moved["key"], moved["new"]["id"]) == ({"id": 1}, {"id": 9}, 9)
    assert (noted["table"], noted["key"]) == ("public.notes", None)
    assert [(one["operation"], one["table"]) for one in truncated] == [
        ("truncate", "public.users"),
        ("truncate", "public.notes"),
    ]
    assert (deleted["operation"], deleted["old"], deleted["new"]) == ("delete", {"id": 9}, None)
    assert (deleted["key"], deleted["lsn"]) == ({"id": 9}, 170)


def test_reading_on_from_any_position_gives_the_same_tail() -> None:
    """Whatever the server sends again, and wherever in a transaction the reader was."""
    whole = records_of(STREAM)
    decoder, seen = ChangeDecoder({}, (0, 0)), 0
    for taken, message in enumerate(STREAM, 1):
        seen += len(decoder.feed([message]))
        for resent in (0, 5):  # From the beginning, or from the second transaction.
            if resent < taken and not (resent and decoder.position[0] < 120):
                tables = [USERS] if resent else []
                again = ChangeDecoder({}, decoder.position)
                assert again.position == decoder.position
                assert again.feed(tables + STREAM[resent:]) == whole[seen:], (taken, resent)


def test_transactions_from_the_end_on_are_left_out() -> None:
    decoder = ChangeDecoder({}, (0, 0), end=150)
    assert [one["lsn"] for one in decoder.feed(STREAM)] == [100, 100]
    assert decoder.ended
    assert not ChangeDecoder({}, (0, 0), end=151).ended
    assert len(records_of(STREAM, end=151)) == 7


def test_a_log_that_is_through_moves_the_position_between_transactions_only() -> None:
    decoder = ChangeDecoder({}, (0, 0), end=300)
    decoder.feed(STREAM[:3])
    decoder.caught_up(300)
    assert (decoder.position, decoder.ended) == ((0, 1), False)
    decoder.feed(STREAM[3:])
    decoder.caught_up(180)
    assert decoder.position == (190, 0)
    decoder.caught_up(300)
    assert (decoder.position, decoder.ended) == ((300, 0), True)


def test_rows_have_the_columns_of_the_last_message_of_their_table() -> None:
    changed = relation(1, "people", "d", ("id", INT8, True), ("age", INT8, False))
    before, after = records_of(
        [begin(1), USERS, change("I", 1, b"N", row("1", "Ann", "x")), commit(1, 2),
         begin(2), changed, change("I", 1, b"N", row("2", "44")), commit(2, 3)]
    )  # fmt: skip
    assert before["new"] == {"id": 1, "name": "Ann", "bio": "x"}
    assert (after["table"], after["new"]) == ("public.people", {"id": 2, "age": 44})


def test_a_whole_old_row_gives_the_values_that_are_unchanged() -> None:
    update = change("U", 2, b"O", row("5", "long"), b"N", row("5", UNCHANGED))
    [record] = records_of([begin(1), NOTES, update], keys={"public.notes": ["id"]})
    assert record["new"] == record["old"] == {"id": 5, "body": "long"}
    assert (record["unchanged"], record["key"]) == ([], {"id": 5})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (16, "t", True),
        (16, "f", False),
        (17, "\\x00ff", b"\0\xff"),
        (21, "-3", -3),
        (701, "1e-05", 1e-05),
        (700, "-Infinity", float("-inf")),
        (1082, "2024-02-29", dt.date(2024, 2, 29)),
        (1082, "infinity", "infinity"),
        (1082, "0044-03-15 BC", "0044-03-15 BC"),
        (1114, "2024-02-29 12:00:00.5", dt.datetime(2024, 2, 29, 12, 0, 0, 500_000)),
        (1184, "2024-02-29 12:00:00+00", dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)),
        (1700, "12.340", Decimal("12.340")),
        (2950, "5d7a", "5d7a"),
    ],
)
def test_values_have_the_type_of_their_column(kind: int, text: str, value: Any) -> None:
    table = relation(1, "t", "d", ("v", kind, False))
    [record] = records_of([begin(1), table, change("I", 1, b"N", row(text))])
    assert record["new"] == {"v": value}
    assert type(record["new"]["v"]) is type(value)


def test_a_change_of_an_unknown_table_or_outside_of_a_transaction_is_refused() -> None:
    with pytest.raises(SourceDataError, match="nothing is known of: 1"):
        records_of([begin(1), change("I", 1, b"N", row("1"))])
    with pytest.raises(SourceDataError, match="no transaction"):
        records_of([NOTES, change("I", 2, b"N", row("1", "a"))])
