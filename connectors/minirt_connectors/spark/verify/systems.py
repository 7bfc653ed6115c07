"""Output that is not in files: tables and topics, copied into a folder by the client of their system.

None of it is read by code of minirt: who judges a sink must not share its mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import ConfigurationError, StorageError

_TOPIC = re.compile(r"kafka://([^/]+)/([^/]+)")
_METADATA = ".metadata.json"
_START_S, _SILENCE_S = 10.0, 30.0
_BATCH_RECORDS = 10_000

Copy = Callable[[Path], None]


def copy_of(path: str, options: Mapping[str, Any]) -> Copy | None:
    """What copies the output at `path` as any reader of its system sees it; None if it is in files.

    `kafka://HOST:PORT/TOPIC` is a topic of JSON values, a path that ends in `.metadata.json` an Iceberg
    table, a folder with a `_delta_log` a Delta table. Raises ConfigurationError if the client is not
    installed, and for an Iceberg table without its file of metadata.
    """
    if path.startswith("kafka:"):
        match = _TOPIC.fullmatch(path)
        if match is None:
            raise ConfigurationError(f"a topic is named kafka://HOST:PORT/TOPIC, not {path}")
        brokers, topic = match.groups()
        return lambda folder: _copy_topic(brokers, topic, options, folder)
    if path.endswith(_METADATA):
        return lambda folder: _copy_iceberg(path, options, folder)
    files, root = fsspec.url_to_fs(path, **{**options, "use_listings_cache": False})
    if files.isdir(f"{root}/_delta_log"):
        return lambda folder: _copy_delta(path, options, folder)
    if files.isdir(f"{root}/metadata") and files.glob(f"{root}/metadata/*{_METADATA}"):
        raise ConfigurationError(
            f"{path} is an Iceberg table: only its catalog knows which state of it counts. Name the file "
            "of that state, catalog.load_table(...).metadata_location"
        )
    return None


def _copy_delta(path: str, options: Mapping[str, Any], folder: Path) -> None:
    deltalake = _client("deltalake", "delta")
    told = {name: str(value) for name, value in options.items()}
    table = deltalake.DeltaTable(path, storage_options=told or None)
    data = table.to_pyarrow_dataset()
    _write(data.schema, data.to_batches(), folder)


def _copy_iceberg(path: str, options: Mapping[str, Any], folder: Path) -> None:
    tables = _client("pyiceberg.table", "iceberg")
    reader = tables.StaticTable.from_metadata(path, dict(options)).scan().to_arrow_batch_reader()
    _write(reader.schema, reader, folder)


def _write(schema: pa.Schema, batches: Iterable[pa.RecordBatch], folder: Path) -> None:
    with pq.ParquetWriter(folder / "table.parquet", schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _copy_topic(brokers: str, topic: str, options: Mapping[str, Any], folder: Path) -> None:
    """All values up to the end, of committed transactions only, a line each."""
    kafka = _client("confluent_kafka", "kafka")
    consumer = kafka.Consumer(
        {
            **options,
            "bootstrap.servers": brokers,
            "group.id": "minirt-verify",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=_START_S).topics[topic]
        if found.error is not None:
            raise StorageError(f"cannot read the topic ({found.error})", topic)
        consumer.assign(
            [
                kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING)
                for number in found.partitions
            ]
        )
        unread = set(found.partitions)
        with (folder / "topic.jsonl").open("wb") as lines:
            while unread:
                messages = consumer.consume(_BATCH_RECORDS, timeout=_SILENCE_S)
                if not messages:
                    raise StorageError(f"nothing has come for {_SILENCE_S:g} s", topic)
                for message in messages:
                    problem = message.error()
                    if problem is None:
                        lines.write(_line(message) + b"\n")
                    elif problem.code() == kafka.KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    else:
                        raise StorageError(f"cannot read the topic ({problem})", topic)
    except kafka.KafkaException as error:
        raise StorageError(f"cannot read the topic ({error.args[0]})", topic) from error
    finally:
        consumer.close()


def _line(message: Any) -> bytes:
    value: bytes | None = message.value()
    if value is None or not value.strip():
        place = f"partition {message.partition()}, offset {message.offset()}"
        raise StorageError(f"the record at {place} has no value to compare", message.topic())
    return value.replace(b"\n", b" ")


def _client(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"to read this output takes {module.partition('.')[0]}: pip install 'minirt[{extra}]'"
        ) from error
