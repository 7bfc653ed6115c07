"""Batches as they travel in channels."""

from __future__ import annotations

from minirt.data.batch import Batch, Columns
from minirt.data.codec import RowCodec, decode_columns, encode_columns
from minirt.runtime.channels.frames import Frame, Kind


def data_frame(batch: Batch, codec: RowCodec) -> Frame:
    """A batch as it travels in a channel."""
    if isinstance(batch, Columns):
        return Frame(Kind.COLUMNS, encode_columns(batch), len(batch))
    return Frame(Kind.ROWS, codec.encode(batch), len(batch))


def batch_of(frame: Frame, codec: RowCodec) -> Batch:
    """The records of a data frame."""
    if frame.kind == Kind.COLUMNS:
        return decode_columns(frame.payload)
    return codec.decode(frame.payload)
