"""Pieces of staged output as streams of Arrow record batches: for ledger sinks that write columns."""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa

from minirt.data.batch import Batch
from minirt.io.encoder import Encoder
from minirt.io.schemas import ColumnEncoder


class ArrowEncoder(Encoder):
    """Writes the batches as columns of one schema, in their order."""

    def __init__(self, stream: BinaryIO, columns: ColumnEncoder) -> None:
        self._stream = stream
        self._columns = columns
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, batch: Batch) -> None:
        encoded = self._columns.encode(batch)
        if self._writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._stream, encoded.schema, options=options)
        self._writer.write_batch(encoded)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        self._writer = None


def read_piece(piece: bytes) -> pa.Table:
    """The records of a piece that an `ArrowEncoder` has made."""
    with pa.ipc.open_stream(piece) as reader:
        return reader.read_all()
