"""What Kafka records consist of, without a broker: values, keys, sizes, and what is said of wrong ones."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

import minirt as rt
from minirt.data.batch import Columns, Rows
from minirt.errors import ConfigurationError, SinkDataError
from minirt_connectors.kafka import KafkaSink, KafkaSource
from minirt_connectors.kafka.cluster import Cluster
from minirt_connectors.kafka.formats import FORMATS, Undecodable, format_of
from minirt_connectors.kafka.incoming import Decoder
from minirt_connectors.kafka.outgoing import OutgoingEncoder, Shape, TopicRules, staged_records
from minirt_connectors.kafka.secrets import Secrets

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
RECORDS = [{"id": n, "name": f"row {n}"} for n in range(5)]
TEXTS = [f'{{"id": {n}, "name": "row {n}", "more": [1, {{"x": 2}}]}}'.encode() for n in range(5)]


def staged(shape: Shape, *batches: Any) -> list[Any]:
    stream = io.BytesIO()
    encoder = OutgoingEncoder(stream, shape, "out")
    for batch in batches:
        encoder.write(batch)
    encoder.finish()
    return [record for part in staged_records(stream.getvalue()) for record in part]


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_writes_it_reads(name: str) -> None:
    format = format_of(name)
    records = RECORDS if name == "json" else [{"value": b"\n\xff"}, {"value": b""}, {"value": None}]
    read = format.decode(format.encode(Rows(records), "out"))
    assert (read if isinstance(read, list) else read.to_pylist()) == records


def test_json_columns_have_the_schema() -> None:
    read = format_of("json", SCHEMA).decode(TEXTS)
    assert isinstance(read, pa.RecordBatch)
    assert read.schema == SCHEMA
    assert read.to_pylist() == RECORDS


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["rows", "columns"])
@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b" ",
        b"{",
        b'{"id": 1} {"id": 2}',
        None,
        b'{"id": 1},{"id": 2}',
        b"\xff",
        b"{}}",
        b'{"id":1}\n{}',
    ],
)
@pytest.mark.parametrize("place", [0, 2, 5], ids=["first", "between", "last"])
def test_a_value_that_is_no_json_is_told_apart_from_its_neighbours(
    schema: Any, wrong: Any, place: int
) -> None:
    with pytest.raises(Undecodable) as caught:
        format_of("json", schema).decode([*TEXTS[:place], wrong, *TEXTS[place:]])
    assert [bad for bad, _ in caught.value.bad] == [place]
    good = caught.value.good
    rows = good if isinstance(good, list) else good.to_pylist()
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4]


def test_a_value_too_many_does_not_make_up_for_one_too_few() -> None:
    for schema in (None, SCHEMA):
        with pytest.raises(Undecodable) as caught:
            format_of("json", schema).decode([b'{"id": 1}{"id": 2}', b"", b'{"id": 3}'])
        assert [place for place, _ in caught.value.bad] == [0, 1]


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["rows", "columns"])
def test_values_may_have_blanks_and_lines(schema: Any) -> None:
    read = format_of("json", schema).decode([b' {"id":\n 1, "name": "x"}\r\n ', TEXTS[1]])
    rows = read if isinstance(read, list) else read.to_pylist()
    assert [row["id"] for row in rows] == [1, 1]


def test_a_value_that_does_not_fit_the_schema_is_bad() -> None:
    with pytest.raises(Undecodable) as caught:
        format_of("json", SCHEMA).decode([TEXTS[0], b'{"id": "seven"}'])
    assert [place for place, _ in caught.value.bad] == [1]


def test_rows_and_columns_are_staged_alike() -> None:
    shape = Shape(format_of("json"), key="id", partition=lambda r: r["id"] % 3, rules=TopicRules(3))
    columns = Columns(pa.RecordBatch.from_pylist(RECORDS))
    assert staged(shape, Rows(RECORDS)) == staged(shape, columns)
    assert staged(shape, columns)[4] == (b'{"id":4,"name":"row 4"}', b"4", 1, 0, None)


def test_every_part_of_a_record_is_staged() -> None:
    shape = Shape(
        format_of("raw"),
        key=lambda r: r["who"],
        headers=lambda r: {"a": "x", "b": b"\0", "c": None},
        timestamp="at",
    )
    records = [{"value": b"v", "who": who, "at": 1234} for who in (b"k", "k", None, [1])]
    found = staged(shape, Rows(records))
    assert [key for _, key, *_ in found] == [b"k", b"k", None, b"[1]"]
    assert {value for value, *_ in found} == {b"v"}
    assert found[0][2:] == (-1, 1234, [("a", b"x"), ("b", b"\0"), ("c", None)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "nothing"}, "no key"),
        ({"partition": lambda r: 5}, "partition 5 is none of 0 to 2"),
        ({"timestamp": lambda r: "noon"}, "no timestamp"),
        ({"timestamp": lambda r: -5}, "before 1970"),
        ({"timestamp": lambda r: 0}, "cannot write the timestamp 0.*the time of writing"),
        ({"headers": lambda r: {"a": 1}}, "neither bytes nor text"),
    ],
)
def test_a_record_without_what_is_asked_of_it_is_named(fields: Any, message: str) -> None:
    shape = Shape(format_of("json"), rules=TopicRules(3), **fields)
    with pytest.raises(SinkDataError, match=rf"out: .*{message}.*row 0"):
        shape.outgoing(Rows(RECORDS), "out")


def test_what_json_does_not_have_is_refused_or_null_as_the_user_says() -> None:
    rows = Rows([{"id": float("nan"), "x": [float("inf")]}])
    with pytest.raises(SinkDataError, match=r'out: .*give the sink nan="null"'):
        Shape(format_of("json"), key="id").outgoing(rows, "out")
    found = staged(Shape(format_of("json", nan="null"), key="id", nan="null"), rows)
    assert found[0][:2] == (b'{"id":null,"x":[null]}', b"null")
    with pytest.raises(ConfigurationError, match="nan must be one of error, null"):
        format_of("json", nan="skip")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="nan='null' has no effect"):
        format_of("raw", nan="null")


def test_raw_text_that_utf_8_does_not_have_names_the_sink() -> None:
    with pytest.raises(SinkDataError, match=r"out: .*no text of UTF-8"):
        Shape(format_of("raw")).outgoing(Rows(["half \ud800"]), "out")


@pytest.mark.parametrize("part", ["value", "key", "headers"])
def test_a_record_larger_than_the_topic_takes_is_refused_when_written(part: str) -> None:
    large = "x" * 900
    fields: dict[str, Any] = {"key": lambda r: large} if part == "key" else {}
    if part == "headers":
        fields = {"headers": lambda r: [("h", large)]}
    records = [{"id": 1}, {"id": 2, "text": large if part == "value" else ""}]
    Shape(format_of("json"), rules=TopicRules(bytes_max=1100), **fields).outgoing(
        Rows(records), "out"
    )
    with pytest.raises(SinkDataError, match=r"out: a record of 9.. bytes is larger"):
        Shape(format_of("json"), rules=TopicRules(bytes_max=1000), **fields).outgoing(
            Rows(records), "out"
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KafkaSink("", "t"), "host:port"),
        (lambda: KafkaSink("h:1", "t", delivery="twice"), "delivery must be one of"),  # type: ignore[arg-type]
        (lambda: KafkaSink("h:1", "t", format="xml"), "format must be one of json, raw"),
        (lambda: KafkaSink("h:1", "t", ledger="t"), "another topic"),
        (lambda: KafkaSink("h:1", "t", partition="p", partitioner="random"), "leave out"),
        (lambda: KafkaSink("h:1", "t", partitioner="mine"), "partitioner must be"),  # type: ignore[arg-type]
        (lambda: KafkaSink("h:1", "t", options={"transactional.id": "x"}), "set by minirt"),
        (lambda: KafkaSource("h:1", "t", start="noon"), "start must be"),
        (lambda: KafkaSource("h:1", "t", start={0: -1}), "start must be"),
        (lambda: KafkaSource("h:1", "t", metadata=["colour"]), "metadata is of"),
        (lambda: KafkaSource("h:1", "t", format="raw", schema=SCHEMA), 'format="json"'),
        (lambda: KafkaSource("h:1", "t", group=""), "group"),
        (lambda: KafkaSource("h:1", "t", on_error="shrug"), "on_error"),  # type: ignore[arg-type]
    ],
)
def test_options_that_cannot_work_are_refused(make: Any, message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        make()


@pytest.mark.parametrize("options", [{"no.such.thing": 1}, {"sasl.mechanism": 5, "linger.ms": "x"}])
def test_options_that_the_client_does_not_know_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(rt.ConfigurationError, match="options of the Kafka client"):
        KafkaSource("127.0.0.1:1", "t", options=options).validate()


def test_nothing_shows_a_secret() -> None:
    options = {"sasl.password": "pass-word-1", "ssl.key.pem": "pem-2", "sasl.username": "me"}
    cluster = Cluster("h:1", options)
    sink, source = KafkaSink("h:1", "t", options=options), KafkaSource("h:1", "t", options=options)
    shown = repr([cluster, sink, source, vars(sink), vars(source)])
    assert "pass-word" not in shown
    assert "pem-2" not in shown
    assert Secrets(options).hidden("a pass-word-1 and\n pem-2 of me") == "a *** and *** of me"
    assert "pass-word" not in repr(pickle.loads(pickle.dumps(source)))


def test_a_partition_that_is_unknown_while_a_broker_restarts_is_asked_for_again() -> None:
    error = KafkaError(KafkaError._UNKNOWN_PARTITION)
    assert isinstance(Cluster("localhost:9092", None).error("cannot read", error), rt.StorageError)


READS = """
import sys
import pyarrow as pa
from minirt_connectors.kafka.formats import format_of
from minirt_connectors.kafka.incoming import Decoder

class Message:
    def value(self):
        return b'{"id": 1, "name": "x"}'

schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
decoder = Decoder(format_of("json", schema), (), "fail", "topic")
print(len(decoder.nothing()), len(decoder.decode([Message(), Message()])), "pandas" in sys.modules)
"""


@pytest.mark.usefixtures("cold_starts")
def test_a_source_that_does_not_make_arrays_has_no_use_for_pandas() -> None:
    """Else each worker imports it, in the middle of its first records."""
    assert not KafkaSource("b", "t", schema=SCHEMA).in_arrays
    done = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "2", "False"]


def test_a_source_and_a_sink_say_that_they_make_arrays() -> None:
    assert KafkaSource("b", "t", format="raw").in_arrays
    assert KafkaSource("b", "t", schema=SCHEMA, metadata=["offset"]).in_arrays
    assert not KafkaSource("b", "t", metadata=["offset"]).in_arrays
    assert KafkaSink("b", "t").in_arrays
    assert not KafkaSink("b", "t", delivery="at_least_once").in_arrays


VALUES = [
    b'{"a":1}',
    b"null",
    b"5",
    b'"x"',
    b"[1]",
    b'{"a":2,"kafka_offset":7}',
    None,
    b"{",
    b'{"a":3}',
]


class Message:
    """A message as the client gives it."""

    def __init__(self, value: bytes | None, offset: int) -> None:
        self._value, self._offset = value, offset

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 0


def test_on_error_decides_on_values_that_metadata_cannot_be_added_to() -> None:
    messages = [Message(value, place) for place, value in enumerate(VALUES)]
    good = [{"a": 1, "kafka_offset": 0}, {"a": 3, "kafka_offset": 8}]
    decoder = Decoder(format_of("json"), ["offset"], "skip", "t")
    assert decoder.decode(messages) == good
    assert decoder.skipped == 7
    decoder = Decoder(format_of("json"), ["offset"], "side_output", "t")
    assert decoder.decode(messages) == good
    bad = {one.location: one.error for one in decoder.take_bad_records()}
    assert sorted(bad) == [f"t, partition 0, offset {offset}" for offset in range(1, 8)]
    assert "JSON objects only" in bad["t, partition 0, offset 1"]
    assert "field 'kafka_offset' of its own" in bad["t, partition 0, offset 5"]
    decoder = Decoder(format_of("json"), ["offset"], "fail", "t")
    with pytest.raises(rt.BadRecordError, match=r"t, partition 0, offset 2: metadata .*: '5'"):
        decoder.decode([messages[0], messages[2]])
