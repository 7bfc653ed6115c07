"""How tables are cut to the width of a terminal."""

from __future__ import annotations

from minirt.cli.tables import fitting

LINKS = "link", "partitioning", "sender", "receiver", "side", "records", "bytes"


def headings(columns: tuple[str, ...], rows: list[list[str]], width: int) -> list[list[str]]:
    numeric = [cell.isdigit() for cell in rows[0]]
    tables = fitting("", columns, rows, numeric, width)
    return [[str(column.header) for column in table.columns] for table in tables]


def test_a_further_table_repeats_what_tells_its_rows_apart() -> None:
    link = "orders-from-the-shop > enrich-orders-with-customers"
    rows = [
        [link, "rebalance", sender, receiver, side, "11", "231"]
        for sender in "01"
        for receiver in "01"
        for side in ("in", "out")
    ]
    wide, narrow = headings(LINKS, rows, 200), headings(LINKS, rows, 70)
    assert wide == [[*LINKS]]
    assert len(narrow) > 1
    for further in narrow[1:]:
        assert further[:4] == ["link", "sender", "receiver", "side"]
    assert {name for part in narrow for name in part} == {*LINKS}


def test_one_column_is_repeated_where_it_is_enough_or_where_more_leave_no_room() -> None:
    columns = "id", "generation", "status"
    assert headings(columns, [["1", "1", "a" * 14], ["2", "1", "a" * 14]], 18) == [
        ["id", "generation"],
        ["id", "status"],
    ]
    assert headings(columns, [["1", "1", "a" * 14], ["1", "2", "a" * 14]], 18) == [
        ["id", "generation"],
        ["id", "status"],
    ]
    assert headings(columns, [["1", "1", "a"]] * 2, 18) == [["id", "generation"], ["id", "status"]]


def test_no_rows_and_no_width_are_laid_out_too() -> None:
    assert headings(("id", "status"), [["1", "done"]], 4) == [["id", "status"]]
