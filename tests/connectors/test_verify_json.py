"""How verify takes values of JSON: exactly as they are written, or not at all. No Spark runs here."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction as Ratio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from minirt.data.batch import Rows
from minirt.io.json_text import JsonlEncoder
from minirt_connectors.spark.verify import json_lines
from minirt_connectors.spark.verify.json_lines import BadLine, Piece, Scan, record_batches, scan
from minirt_connectors.spark.verify.json_shapes import Mixed, Shape
from minirt_connectors.spark.verify.json_values import Fraction, Misfit, taker

UTC = dt.UTC


def no_fold(at: dt.datetime) -> dt.datetime:
    return at.replace(fold=0)


LOCALS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(no_fold)
MONEY = st.decimals(-(10**8), 10**8, places=2).map(lambda d: d.quantize(Decimal("0.01")))
TEXTS = st.text(max_size=8)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "decimal": (pa.decimal128(10, 2), MONEY),
    "text": (pa.string(), TEXTS),
    "binary": (pa.binary(), st.binary(max_size=8)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), LOCALS.map(lambda at: at.replace(tzinfo=UTC))),
    "local": (pa.timestamp("us"), LOCALS),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "b": st.none() | TEXTS}),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(TEXTS, st.integers(-9, 9), max_size=3),
    ),
}
TYPED = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.none() | KINDS[kind][1], st.none() | KINDS[kind][1])
)


def written(value: Any) -> str:
    """The value as minirt's sink writes it."""
    stream = io.BytesIO()
    JsonlEncoder(stream, "sink", "error").write(Rows([{"v": value}]))
    return stream.getvalue().decode()


def read(line: str) -> Any:
    return json.loads(line, parse_float=Fraction, parse_constant=Fraction)["v"]


def taken(line: str, kind: pa.DataType) -> Any:
    value = taker(kind, "Europe/Berlin")(read(line))
    return dict(value) if pa.types.is_map(kind) and value is not None else value


@given(TYPED)
def test_a_value_is_what_the_sink_wrote_and_no_other(drawn: tuple[str, Any, Any]) -> None:
    name, value, other = drawn
    kind, _ = KINDS[name]
    assert taken(written(value), kind) == value
    assert (taken(written(other), kind) == value) is (other == value)


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda d: f"{d:f}"),
    st.tuples(st.integers(0, 10**20), st.integers(-340, 320)).map("{0[0]}e{0[1]}".format),
)
NUMERIC = ["byte", "int", "long", "double", "float", "decimal"]


@given(NUMBERS, st.sampled_from(NUMERIC))
@example("9007199254740993", "double")
@example("1.234", "decimal")
@example("0.1", "float")
@example("1e400", "double")
def test_a_number_that_is_taken_is_the_one_that_is_written(text: str, name: str) -> None:
    """Doubles are what they print: the digits of the text are those of the exact value, rounded there."""
    kind, _ = KINDS[name]
    try:
        found = taken(f'{{"v": {text}}}', kind)
    except Misfit:
        if name in ("byte", "int", "long"):
            said = Decimal(text)
            limit = 2 ** (kind.bit_width - 1)
            assert said != said.to_integral_value() or not -limit <= said < limit
        return
    if name not in ("double", "float"):
        assert Decimal(text) == found
        return
    unit = Ratio(10) ** int(Decimal(text).as_tuple().exponent)
    assert abs(Ratio(found) - Ratio(text)) <= unit / 2


BENT = [
    ("1", "text"),
    ("true", "text"),
    ('{"b":1}', "text"),
    ('"1"', "long"),
    ("1.5", "long"),
    ("1e3000000000", "long"),
    ("true", "long"),
    ("9223372036854775808", "long"),
    ("128", "byte"),
    ('"1.5"', "double"),
    ("9007199254740993", "double"),
    ("16777217", "float"),
    ("1e999", "double"),
    ("1.234", "decimal"),
    ('"1.234"', "decimal"),
    ("100000000", "decimal"),
    ('"NaN"', "decimal"),
    ('" 1"', "decimal"),
    ("1", "boolean"),
    ('"true"', "boolean"),
    ('"2024-01-01T23:00:00"', "date"),
    ('"2024-1-1"', "date"),
    ('"2024-02-30"', "date"),
    ("19723", "date"),
    ('"2024-01-01T00:00:00.123456789Z"', "timestamp"),
    ('"2024-01-01"', "timestamp"),
    ("1704067200", "timestamp"),
    ('"0001-01-01T00:00:00+12:00"', "timestamp"),
    ('"YQ"', "binary"),
    ('"Y Q="', "binary"),
    ("{}", "list"),
    ("[1.5]", "list"),
    ('{"a":1,"b":"x","c":2}', "struct"),
    ('{"a":"1"}', "struct"),
    ("[1]", "struct"),
    ('[["a",1],["a",2]]', "map"),
    ('{"a":"1"}', "map"),
    ('"\\ud800"', "text"),
]


@pytest.mark.parametrize(("text", "name"), BENT)
def test_a_value_of_another_kind_is_not_bent(text: str, name: str) -> None:
    with pytest.raises(Misfit):
        taken(f'{{"v": {text}}}', KINDS[name][0])


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("5", "double", 5.0),
        ("5.0", "long", 5),
        ("0.10000000000000001", "double", 0.1),
        ("0.10000000149011612", "float", 0.10000000149011612),
        ("1e23", "double", 1e23),
        ("1.5", "decimal", Decimal("1.50")),
        ('"1.500"', "decimal", Decimal("1.50")),
        ('"Infinity"', "double", math.inf),
        ("-Infinity", "double", -math.inf),
        ('"2024-01-01T00:00:00.120000000Z"', "local", dt.datetime(2024, 1, 1, 1, 0, 0, 120_000)),
        ('"2024-01-01 00:00:00"', "timestamp", dt.datetime(2023, 12, 31, 23, tzinfo=UTC)),
        ('"2024-01-01T00:00"', "local", dt.datetime(2024, 1, 1)),
        ('{"b":null}', "struct", {"a": None, "b": None}),
        ('[["a",1]]', "map", {"a": 1}),
    ],
)
def test_other_ways_to_write_a_value_are_taken(text: str, name: str, value: Any) -> None:
    assert taken(f'{{"v": {text}}}', KINDS[name][0]) == value


def test_keys_of_maps_are_text_or_json() -> None:
    kind = pa.map_(pa.int64(), pa.string())
    assert taken('{"v": {"1": "a"}}', kind) == {1: "a"}
    days = pa.map_(pa.date32(), pa.string())
    assert taken('{"v": {"2024-01-01": "a"}}', days) == {dt.date(2024, 1, 1): "a"}
    for text in ('{"1.5": "a"}', '{"x": "a"}', '{"1": "a", "01": "b"}'):
        with pytest.raises(Misfit):
            taken(f'{{"v": {text}}}', kind)


GOOD = st.fixed_dictionaries(
    {"id": st.integers(0, 9), "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=9)}
)
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@given(st.lists(GOOD, max_size=12), st.integers(1, 60), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_pieces_have_each_line_once_wherever_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], size: int, end: str
) -> None:
    path = tmp_path_factory.mktemp("lines") / "part.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode())
    whole = path.stat().st_size
    found, seen = [], Scan()
    for begin in range(0, whole, size):
        piece = Piece.of_text(Piece(str(path), begin, min(begin + size, whole), {}).as_text())
        found += [row for one in record_batches(piece, SCHEMA, "UTC") for row in one.to_pylist()]
        seen.merge(Scan.of_text(scan(piece, {}, "UTC").as_text()))
    assert found == rows
    assert seen.rows == len(rows)
    if rows:
        assert {name: shape.arrow() for name, shape in seen.shapes.items()} == {
            "id": pa.int64(),
            "text": pa.string(),
        }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 1}{"id": 1}', "Extra data"),
        ('{"id": 2} {"id": 9}', "Extra data"),
        ('{"id": 2}, {"id": 9}', "Extra data"),
        ('{"id": 1', "delimiter"),
        ('{"id": 1, "id": 2}', "a field twice"),
        ('{"id": {"a": 1, "a": 1}}', "a field twice"),
        ("[1]", "no JSON object"),
        ("1", "no JSON object"),
        ('{"id": "\udcff"}', "utf-8"),
        ("[" * 100_000, "recursion"),
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_that_is_not_one_object_is_named(
    tmp_path: Path, line: str, reason: str, end: str
) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(f'{{"id": 0}}\n\n{line}{end}'.encode(errors="surrogateescape"))
    with pytest.raises(BadLine, match=rf"(?i)part\.jsonl, line 3.*{reason}"):
        scan(Piece(str(path), 0, path.stat().st_size, {}), {"id": pa.int64()}, "UTC")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".lz4"])
def test_a_compressed_file_that_is_cut_off_is_not_read_as_whole(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"part.jsonl{suffix}"
    lines = b"".join(b'{"id": %d}\n' % (number * 7919) for number in range(5000))
    path.write_bytes(compressed(lines, suffix))
    assert scan(Piece(str(path), 0, None, {}), {}, "UTC").rows == 5000
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(BadLine, match="part"):
        scan(Piece(str(path), 0, None, {}), {}, "UTC")


def compressed(data: bytes, suffix: str) -> bytes:
    import bz2
    import lzma

    known: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
    }
    if suffix in known:
        return known[suffix](data)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, {".zst": "zstd", ".lz4": "lz4"}[suffix]) as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def test_misfits_name_file_line_column_and_both(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_text('{"s": {"a": 1}}\n{"s": {"a": "x"}}\n{"s": {"a": "y"}}\n')
    kind = pa.struct([("a", pa.int64())])
    [told] = scan(Piece(str(path), 0, None, {}), {"s": kind}, "UTC").misfits.values()
    assert "part.jsonl, line 2, column s.a" in told
    assert '"x"' in told
    assert "int64" in told


def test_what_the_folder_says_is_not_said_by_lines(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_text('{"k": 1}\n')
    with pytest.raises(BadLine, match="the line has k, and so has the folder"):
        scan(Piece(str(path), 0, None, {"k": "1"}), {}, "UTC")


def shape_of(*texts: str) -> pa.DataType:
    whole = Shape()
    for text in texts:
        one = Shape()
        one.add(read(f'{{"v": {text}}}'))
        whole.merge(one)
    return whole.arrow()


def test_the_type_of_values_is_one_that_holds_all_of_them() -> None:
    assert shape_of("1", "null", "-5") == pa.int64()
    assert shape_of("1", "0.5") == pa.float64()
    assert shape_of("9007199254740993", "0.5") == pa.decimal128(17, 1)
    assert shape_of("1.00000000000000000001") == pa.decimal128(21, 20)
    assert shape_of("18446744073709551616") in (pa.float64(), pa.decimal128(20, 0))
    assert shape_of("[1]", "[null]", "[]") == pa.list_(pa.int64())
    assert shape_of('{"a": 1}', '{"b": "x"}') == pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert shape_of("null") == pa.string()
    for texts in (["1", '"1"'], ["true", "1"], ["{}", "[]"], ["NaN", "1.00000000000000000001"]):
        with pytest.raises(Mixed):
            shape_of(*texts)


@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_the_type_of_numbers_takes_each_of_them(texts: list[str]) -> None:
    try:
        kind = shape_of(*texts)
    except Mixed:
        assume(False)
        return
    for text in texts:
        found = taken(f'{{"v": {text}}}', kind)
        if not pa.types.is_floating(kind):
            assert Decimal(text) == found


def test_it_brings_nothing_of_minirt_along() -> None:
    """Executors may lack minirt: what is sent there imports it for its own parts only."""
    from minirt_connectors.spark.verify import json_shapes, json_values, near_numbers

    parts = {
        name: value
        for module in (json_lines, json_shapes, json_values, near_numbers)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "").startswith("minirt")
    }
    sent = ("json_lines", "json_shapes", "json_values", "near_numbers")
    assert {value.__module__.rpartition(".")[2] for value in parts.values()} <= set(sent)
