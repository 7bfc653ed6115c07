"""Values arrive in tables as they were sent, or the record is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from minirt.io import Sink
from minirt_connectors.delta import DeltaSink
from minirt_connectors.iceberg import IcebergSink
from tests.contracts.arrivals import PLAIN_TYPES, SinkArrivals, place
from tests.data.saying import said_by_all

__all__ = ["place"]

_STRUCT = pa.struct([("p", pa.int64())])
_NESTED = (
    *(pa.list_(pa.float32()), pa.list_(_STRUCT), pa.list_(pa.list_(_STRUCT))),
    *(pa.struct([("p", pa.list_(_STRUCT))]), pa.map_(pa.string(), _STRUCT)),
)


class TestDeltaSink(SinkArrivals):
    TYPES = (*PLAIN_TYPES, *_NESTED)

    def new_sink(self, folder: Path, schema: pa.Schema) -> Sink:
        return DeltaSink(str(folder / "table"), schema=schema)

    def found(self, folder: Path) -> list[Any]:
        files = deltalake.DeltaTable(str(folder / "table")).file_uris()
        [path] = [path.removeprefix("file://") for path in files]
        return said_by_all(pq.read_table(path).sort_by("id")["v"])


class TestIcebergSink(SinkArrivals):
    TYPES = (
        *(type for type in PLAIN_TYPES if type != pa.int8()),
        *_NESTED,
    )

    def new_sink(self, folder: Path, schema: pa.Schema) -> Sink:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        catalog = load_catalog("minirt", **properties)
        catalog.create_namespace("db")
        catalog.create_table("db.t", schema)
        catalog.close()
        return IcebergSink(properties, "db.t")

    def found(self, folder: Path) -> list[Any]:
        [path] = (folder / "db").rglob("*.parquet")
        return said_by_all(pq.ParquetFile(path).read().sort_by("id")["v"])
