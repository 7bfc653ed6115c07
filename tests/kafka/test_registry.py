"""Avro and Protobuf with a schema registry, beside the serialisers of Confluent."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="the extra registry is not installed")

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import minirt as rt
from minirt.data.batch import Rows
from minirt_connectors.kafka import (
    AvroFormat,
    Format,
    KafkaSink,
    KafkaSource,
    ProtobufFormat,
    SchemaRegistry,
)
from minirt_connectors.kafka.formats import Undecodable
from tests.kafka.broker import Cluster
from tests.kafka.registry import FakeRegistry

OF_VALUE = SerializationContext("orders", MessageField.VALUE)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
ORDERS = [{"id": 1, "note": "ä"}, {"id": -7, "note": None}]
Proto = descriptor_pb2.FieldDescriptorProto


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    started = FakeRegistry()
    yield started
    started.stop()


def client(registry: FakeRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def messages() -> dict[str, Any]:
    """Classes as protoc makes them: `Other`, and `Order` with what a message can have, in two files."""
    parts = descriptor_pb2.FileDescriptorProto(name="p.proto", package="shop", syntax="proto3")
    item = parts.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=Proto.TYPE_STRING, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    file.dependency.append("p.proto")
    other = file.message_type.add(name="Other")
    other.field.add(name="id", number=1, type=Proto.TYPE_INT64, label=1)
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Proto.TYPE_STRING, label=1)
    of_item = {"type": Proto.TYPE_MESSAGE, "type_name": ".shop.Item"}
    entry.field.add(name="value", number=2, label=1, **of_item)
    of_entry = {"type": Proto.TYPE_MESSAGE, "type_name": ".shop.Order.TagsEntry"}
    of_state = {"type": Proto.TYPE_ENUM, "type_name": ".shop.State"}
    order.field.add(name="id", number=1, type=Proto.TYPE_INT64, label=1)
    order.field.add(name="state", number=2, label=1, **of_state)
    order.field.add(name="first", number=3, label=1, **of_item)
    order.field.add(name="items", number=4, label=3, **of_item)
    order.field.add(name="tags", number=5, label=3, **of_entry)
    order.field.add(name="data", number=6, type=Proto.TYPE_BYTES, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(parts)
    pool.Add(file)
    named = ("Order", "Other")
    found = [pool.FindMessageTypeByName(f"shop.{name}") for name in named]
    return dict(zip(named, map(message_factory.GetMessageClass, found), strict=True))


MESSAGES = messages()
FULL = {
    "id": 1 << 60,
    "state": "PAID",
    "first": {"sku": "a"},
    "items": [{"sku": "b"}, {"sku": "c"}],
    "tags": {"x": {"sku": "d"}},
    "data": b"\xff\0",
}
EMPTY = {"id": 0, "state": "NEW", "first": None, "items": [], "tags": {}, "data": b""}


def in_worker(format: Format, *, writing: bool) -> Format:
    """As it comes to a worker."""
    ready: Format = pickle.loads(pickle.dumps(format.for_topic("orders", writing=writing)))
    return ready


def test_avro_is_what_others_write_and_read(registry: FakeRegistry) -> None:
    mine = in_worker(AvroFormat(registry.url, ORDER), writing=True)
    written = mine.encode(Rows(list(ORDERS)), "out")
    read = AvroDeserializer(client(registry))
    assert [read(value, OF_VALUE) for value in written] == ORDERS
    assert registry.subjects == {"orders-value": [1]}
    write = AvroSerializer(client(registry), json.dumps(ORDER))
    theirs = [write(record, OF_VALUE) for record in ORDERS]
    assert in_worker(AvroFormat(registry.url), writing=False).decode(theirs) == ORDERS


def test_avro_of_several_versions_is_read_by_the_schema_that_is_asked_for(
    registry: FakeRegistry,
) -> None:
    added = {"name": "total", "type": "double", "default": 0.5}
    newer = {**ORDER, "fields": [*ORDER["fields"], added]}
    values = [
        in_worker(AvroFormat(registry.url, schema), writing=True).encode(Rows([record]), "out")[0]
        for schema, record in ((ORDER, ORDERS[0]), (newer, {**ORDERS[1], "total": 2.0}))
    ]
    as_written = in_worker(AvroFormat(registry.url), writing=False)
    assert as_written.decode(values) == [ORDERS[0], {**ORDERS[1], "total": 2.0}]
    as_newer = in_worker(AvroFormat(registry.url, newer), writing=False)
    assert as_newer.decode(values) == [{**ORDERS[0], "total": 0.5}, {**ORDERS[1], "total": 2.0}]
    asked = registry.asked.count("GET /schemas/ids/1")
    as_newer.decode(values * 50)
    assert registry.asked.count("GET /schemas/ids/1") == asked


def test_avro_that_refers_to_other_schemas(registry: FakeRegistry) -> None:
    whole = {"type": "record", "name": "Cart", "fields": [{"name": "order", "type": "Order"}]}
    client(registry).register_schema("order", Schema(json.dumps(ORDER), "AVRO"))
    reference = SchemaReference("Order", "order", 1)
    cart = Schema(json.dumps(whole), "AVRO", [reference])
    client(registry).register_schema("orders-value", cart)
    records = [{"order": order} for order in ORDERS]
    values = in_worker(AvroFormat(registry.url), writing=True).encode(Rows(records), "out")
    assert in_worker(AvroFormat(registry.url), writing=False).decode(values) == records


def test_protobuf_is_what_others_write_and_read(registry: FakeRegistry) -> None:
    for name, records in (("Order", [FULL, EMPTY]), ("Other", [{"id": 5}])):
        message = MESSAGES[name]
        mine = in_worker(ProtobufFormat(registry.url, message), writing=True)
        written = mine.encode(Rows(list(records)), "out")
        read = ProtobufDeserializer(message, {"use.deprecated.format": False}, client(registry))
        assert [read(value, OF_VALUE) for value in written] == [message(**r) for r in records]
        write = ProtobufSerializer(message, client(registry), {"use.deprecated.format": False})
        theirs = [write(message(**record), OF_VALUE) for record in records]
        assert theirs == written
        again = in_worker(ProtobufFormat(registry.url, message), writing=False)
        assert again.decode(theirs) == records
    assert set(registry.subjects) == {"p.proto", "orders-value"}


def test_values_that_do_not_parse_are_told_one_by_one(registry: FakeRegistry) -> None:
    avro = in_worker(AvroFormat(registry.url, ORDER), writing=True)
    [good] = avro.encode(Rows([ORDERS[0]]), "out")
    proto = in_worker(ProtobufFormat(registry.url, MESSAGES["Other"]), writing=True)
    [other] = proto.encode(Rows([{"id": 5}]), "out")
    unknown = b"\0\0\0\0\x63" + good[5:]
    wrong = [None, b"", b"{}", unknown, good[:-1], good + b"x", other]
    reads = in_worker(AvroFormat(registry.url), writing=False)
    with pytest.raises(Undecodable) as caught:
        reads.decode([good, *wrong, good])
    assert caught.value.good == [ORDERS[0]] * 2
    assert [place for place, _ in caught.value.bad] == list(range(1, 8))
    assert "has no schema 99" in caught.value.bad[3][1]
    reads = in_worker(ProtobufFormat(registry.url, MESSAGES["Order"]), writing=False)
    wrong = [None, b"", good, other, other[:5], other[:5] + b"\x80", other[:5] + b"\x02\x10"]
    with pytest.raises(Undecodable) as caught:
        reads.decode(wrong)
    assert [place for place, _ in caught.value.bad] == list(range(len(wrong)))
    assert "it is a shop.Other, not a shop.Order" in caught.value.bad[3][1]


def test_records_that_do_not_fit_name_the_operator_and_the_record(registry: FakeRegistry) -> None:
    avro = in_worker(AvroFormat(registry.url, ORDER), writing=True)
    proto = in_worker(ProtobufFormat(registry.url, MESSAGES["Order"]), writing=True)
    for format, record in ((avro, {"id": "x", "note": None}), (proto, {"idd": 1}), (proto, 5)):
        with pytest.raises(rt.SinkDataError, match=r"^out: a record does not fit .*(x|idd|5)"):
            format.encode(Rows([record]), "out")


def test_what_cannot_work_is_refused_before_the_start(registry: FakeRegistry) -> None:
    frozen, login = FakeRegistry(), FakeRegistry("me:secret-word")
    frozen.frozen.add("orders-value")
    at_login = SchemaRegistry(login.url, {"basic.auth.user.info": "me:wrong-word"})
    down = SchemaRegistry("http://127.0.0.1:1", {"max.retries": 0})
    strict = AvroFormat(registry.url, ORDER, register=False)
    for format, writing, message in (
        (AvroFormat(down, ORDER), True, "127.0.0.1:1: does not answer"),
        (AvroFormat(down), False, "127.0.0.1:1: does not answer"),
        (
            AvroFormat(frozen.url, ORDER),
            True,
            "refuses the schema for 'orders-value'.*incompatible",
        ),
        (AvroFormat(registry.url), True, "no schema for 'orders-value'"),
        (strict, True, "does not know this schema for 'orders-value'"),
        (strict, False, "no effect on a source"),
        (AvroFormat(at_login, ORDER), True, "Unauthorized"),
    ):
        with pytest.raises(rt.ConfigurationError, match=message) as caught:
            format.for_topic("orders", writing=writing)
        assert "word" not in str(caught.value)
    AvroFormat(registry.url, ORDER).for_topic("orders", writing=True)
    strict.for_topic("orders", writing=True)
    for user in ("me:secret-word@", ""):
        options = None if user else {"basic.auth.user.info": "me:secret-word"}
        right = SchemaRegistry(f"http://{user}{login.host}", options)
        AvroFormat(right, ORDER).for_topic("orders", writing=True)
        assert "word" not in repr(right)
    for refused in (
        lambda: AvroFormat(registry.url, "{"),
        lambda: AvroFormat(registry.url, {"type": "recrod"}),
        lambda: AvroFormat("localhost:8081", ORDER),
        lambda: ProtobufFormat(registry.url, dict),
        lambda: SchemaRegistry(registry.url, {"no.such.option": 1}).check(),
    ):
        with pytest.raises(rt.ConfigurationError):
            refused()
    frozen.stop()
    login.stop()


def test_a_registry_that_is_down_in_the_middle_is_asked_again_after_a_restart(
    registry: FakeRegistry,
) -> None:
    [value] = in_worker(AvroFormat(registry.url, ORDER), writing=True).encode(
        Rows([ORDERS[0]]), "out"
    )
    quick = SchemaRegistry(registry.url, {"max.retries": 0})
    reads = in_worker(AvroFormat(quick), writing=False)
    registry.stop()
    with pytest.raises(rt.StorageError, match="cannot get schema 1"):
        reads.decode([value])


@pytest.mark.kafka
@pytest.mark.processes
@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_job_writes_and_reads_again(
    cluster: Cluster, registry: FakeRegistry, tmp_path: Path, kind: str
) -> None:
    topic = cluster.topic(2)
    if kind == "avro":
        writes: Format = AvroFormat(registry.url, ORDER)
        reads: Format = AvroFormat(registry.url)
        records: list[Any] = [{"id": n, "note": None} for n in range(500)]
    else:
        reads = writes = ProtobufFormat(registry.url, MESSAGES["Order"])
        records = [{**FULL, "id": n} for n in range(500)]
    env = rt.Environment("writing")
    sink = KafkaSink(cluster.bootstrap, topic, format=writes, ledger=f"ledger-{topic}")
    env.source(rt.CollectionSource(records), uid="in").sink(sink, uid="out")
    env.execute(checkpointing=rt.Checkpointing(tmp_path / "chk", interval=0.2))
    cluster.send(topic, [b"\0\0\0\0\x63\xff"])
    found, bad = rt.CollectSink(), rt.CollectSink()
    env = rt.Environment("reading")
    source = KafkaSource(
        cluster.bootstrap, topic, bounded=True, format=reads, on_error="side_output"
    )
    read = env.source(source, uid="in")
    read.sink(found, uid="out")
    read.side_output("errors").sink(bad, uid="bad")
    env.execute()
    assert sorted(found.rows, key=lambda row: row["id"]) == records
    [wrong] = bad.rows
    assert wrong["raw"] == b"\0\0\0\0\x63\xff"
    assert f"{topic}, partition 0, offset" in wrong["location"]
