"""The input of an operator that asks for batches of some size: what comes in small pieces is held.

A batch has records of one input of the operator, and the first of them are the oldest that are held.

What is held counts as unread. A barrier that overtakes captures it, piece by piece with its channels, and
one that does not is reached behind it: nothing is in an operator that a snapshot would have to hold. So a
barrier, and the end of a channel, end the batch that lies before them. Watermarks do not, or batches would
be as small as the time between two of them: they follow behind the records that came before them, and so do
latency markers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from minirt.data.batch import Batch, Columns, Rows, concat_columns, concat_rows
from minirt.graph.operator_spec import Gathering
from minirt.protocol.stored_watermarks import RestoredWatermarks
from minirt.runtime.channels.channels import InputChannel
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.input.elements import MANY_CHANNELS, Data, Element
from minirt.runtime.input.gate_input import GateInput, Incoming
from minirt.runtime.input.input import InputParts

_FOLLOWS = (Kind.WATERMARK, Kind.IDLE, Kind.ACTIVE, Kind.LATENCY)
"""What waits behind the records that are held, and does not end their batch."""
_ENDS_A_BATCH = (Kind.BARRIER, Kind.END)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records of one channel that were taken in at `since`."""

    data: Data
    since: float
    channel: InputChannel
    record_bytes: float

    def __len__(self) -> int:
        return len(self.data.batch)

    def slice(self, start: int, stop: int) -> _Piece:
        return replace(self, data=replace(self.data, batch=self.data.batch.slice(start, stop)))


_Held = _Piece | tuple[int, Frame]
"""Records, or a frame that follows them with the index of its channel."""


class GatheringInput(GateInput):
    """Gives out as many records as are `wanted`, or what there is once the first has waited long enough."""

    def __init__(
        self,
        incoming: Sequence[Incoming],
        parts: InputParts,
        watermarks: RestoredWatermarks | None,
        wanted: Gathering,
        now: Callable[[], float],
    ) -> None:
        super().__init__(incoming, parts, watermarks)
        self._size = wanted.size
        self._wait_s = wanted.wait_s
        self._whole = wanted.whole
        self._now = now
        self._held: deque[_Held] = deque()
        self._records = 0
        """How many records are held."""
        self._mixed = False
        """Whether some of them cannot be in one batch with those before them."""
        self._given: deque[_Piece] = deque()
        """What is not processed yet of the batch in work."""
        self._taken: tuple[InputChannel, float] | None = None
        """Where the last frame came from, and how large its records are."""

    @property
    def piece_records(self) -> int | None:
        return self._size if self._whole else None

    @property
    def wake_at(self) -> float | None:
        return None if self._since is None else self._since + self._wait_s

    @property
    def _has_new(self) -> bool:
        return super()._has_new or self._due or isinstance(self._next, tuple)

    def _poll_new(self) -> Element | None:
        while isinstance(self._next, tuple):
            element = super()._element(*self._next)
            self._held.popleft()
            if element is not None:
                return element
        while not self._due:
            element = super()._poll_new()
            if isinstance(element, Data):
                self._hold(element)
            elif element is not None or not self._due:
                return element
        return self._give()

    def _processed(self, records: int) -> None:
        while records:
            piece = self._given.popleft()
            if len(piece) > records:
                self._given.appendleft(piece.slice(records, len(piece)))
                piece = piece.slice(0, records)
            piece.channel.begin(round(piece.record_bytes * len(piece)), len(piece))
            piece.channel.processed(len(piece))
            records -= len(piece)

    def held(self) -> Iterator[Data]:
        for piece in (*self._given, *self._held):
            if isinstance(piece, _Piece):
                yield piece.data

    @property
    def _next(self) -> _Held | None:
        return self._held[0] if self._held else None

    @property
    def _since(self) -> float | None:
        first = self._next
        return first.since if isinstance(first, _Piece) else None

    @property
    def _due(self) -> bool:
        since = self._since
        if since is None:
            return False
        if self._records >= self._size or self._mixed or self._gate.next_kind in _ENDS_A_BATCH:
            return True
        return since + self._wait_s <= self._now() and not super()._has_new

    def _take(self) -> tuple[int, Frame] | None:
        """What ends a batch stays in its queue until that is processed: a barrier is not reached yet."""
        return None if self._held and self._gate.next_kind in _ENDS_A_BATCH else super()._take()

    def _element(self, channel: int, frame: Frame) -> Element | None:
        if self._held and frame.kind in _FOLLOWS:
            self._held.append((channel, frame))
            return None
        return super()._element(channel, frame)

    def _begin_work(self, channel: InputChannel, frame_bytes: int, records: int) -> None:
        """Remember the channel only: work begins when the batch is given out."""
        self._taken = (channel, frame_bytes / max(1, records))

    def _hold(self, data: Data) -> None:
        assert self._taken is not None
        channel, record_bytes = self._taken
        self._taken = None
        if not len(data.batch):
            return
        last = next((one for one in reversed(self._held) if _is_of(one, data.input_index)), None)
        self._mixed |= isinstance(last, _Piece) and not alike(last.data, data)
        self._held.append(_Piece(data, self._now(), channel, record_bytes))
        self._records += len(data.batch)

    def _give(self) -> Data:
        before = self._held.copy()
        given = self._cut(self._size)
        batch = joined([piece.data.batch for piece in given])
        if batch is None:
            self._held = before
            given = self._cut(min(self._size, len(given[0])))
            batch = given[0].data.batch
        self._given = deque(given)
        self._records -= len(batch)
        self._mixed = self._is_mixed()
        return Data(batch, given[0].data.input_index, MANY_CHANNELS)

    def _is_mixed(self) -> bool:
        rest = [piece.data for piece in self._held if isinstance(piece, _Piece)]
        inputs = {data.input_index for data in rest}
        by_input = ([data for data in rest if data.input_index == each] for each in inputs)
        return any(not alike(*pair) for datas in by_input for pair in pairwise(datas))

    def _cut(self, size: int) -> list[_Piece]:
        """Take the pieces of the next batch. What lies between them stays in its order."""
        pieces: list[_Piece] = []
        kept: list[_Held] = []
        room = size
        while room and self._held:
            next = self._held.popleft()
            if not isinstance(next, _Piece) or (
                pieces and next.data.input_index != pieces[0].data.input_index
            ):
                kept.append(next)
                continue
            if pieces and not alike(pieces[-1].data, next.data):
                kept.append(next)
                break
            if len(next) > room:
                kept.append(next.slice(room, len(next)))
                next = next.slice(0, room)
            room -= len(next)
            pieces.append(next)
        self._held.extendleft(reversed(kept))
        return pieces


def _is_of(held: _Held, input_index: int) -> bool:
    return isinstance(held, _Piece) and held.data.input_index == input_index


def alike(one: Data, other: Data) -> bool:
    """Whether these may be in one batch."""
    first, second = one.batch, other.batch
    if one.input_index != other.input_index:
        return False
    if (first.timestamps is None) is not (second.timestamps is None):
        return False
    if isinstance(first, Columns) and isinstance(second, Columns):
        return bool(first.table.schema.equals(second.table.schema, check_metadata=True))
    return isinstance(first, Rows) and isinstance(second, Rows)


def joined(batches: Sequence[Batch]) -> Batch | None:
    """All in one; None if they are too many different values for one dictionary."""
    rows = [batch for batch in batches if isinstance(batch, Rows)]
    if rows:
        return concat_rows(rows)
    columns = concat_columns([batch for batch in batches if isinstance(batch, Columns)])
    return columns[0] if len(columns) == 1 else None
