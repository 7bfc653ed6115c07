"""What a running operator offers its subtask, and how failures of user code are reported."""

from __future__ import annotations

import traceback
from abc import ABC
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import Any, ClassVar

import pyarrow as pa

from minirt.clock import SYSTEM_CLOCK
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.custody import Custody
from minirt.errors import MinirtError, UserCodeError
from minirt.graph.keys import KeySelector
from minirt.io.base import Prepared, Split, Staging
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.operators.common.mailbox import Mailbox
from minirt.state.sections import Section

Emit = Callable[[Batch], None]


def _run_at_once(call: Callable[[], None]) -> None:
    call()


CoroutineStart = Callable[[], Coroutine[Any, Any, None]]
"""Makes the coroutine that an event loop is to run."""


def _no_event_loop(start: CoroutineStart) -> None:
    raise NotImplementedError("nobody runs coroutines here")


def _nobody_behind(watermark: int | None, idle: bool | None) -> Iterable[Step]:
    return ()


class Wait(Enum):
    """What a step may say instead of nothing."""

    FOR_MAIL = "there is nothing to do until mail was handed to an operator of the subtask"


Step = Wait | None
"""What work that may take long yields, step by step."""

_CALL_FUNCTIONS = (
    "minirt.operators",
    "minirt.partitionings",
    "minirt.watermarks",
    "minirt.state.accumulators",
)
"""Where functions of users are called, see `user_error`."""

_SHOWN_MAX = 20
"""How many records of a batch an error message shows at most."""

RECORD_TEXT_MAX = 500
"""How much of a record an error message shows, in characters."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """Where an operator runs. `side` finds the way out for a side output's tag."""

    label: str
    uid: str
    subtask: int
    parallelism: int
    max_parallelism: int
    generation: int
    now: Callable[[], float]
    """The wall clock, which may be set: for what users see of it, and for their processing-time timers."""
    allow_pickle: bool
    emit: Emit
    side: Callable[[str], Emit]
    metrics: SubtaskMetrics = field(default_factory=SubtaskMetrics)
    custody: Custody = field(default_factory=Custody)
    """How records pass between the operator and functions of the user."""
    monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic
    """For all that lasts or is due: intervals, timeouts, pace."""
    keys: tuple[KeySelector, ...] = ()
    """How the records of each input are keyed; empty for an operator without keys."""
    in_order: bool = True
    """Whether records of one key may come in order, see `ExecutionGraph.in_order`."""
    splits: Sequence[tuple[int, Split]] = ()
    """What a source is to read from the beginning, each with its place in the order of all splits."""
    watermark_interval_s: float = 0.0
    source_poll_s: float = 0.0
    watermarks_restored: bool = False
    """Whether event time goes on after a restore from where it was."""
    repeats: bool = False
    """Whether the subtask may have to do again what it did behind a snapshot, as others have seen it.

    What it gives out at a time must then be in an order that does not depend on how state is kept: that is
    another one after a restore.
    """
    read_clock: Callable[[], int] | None = None
    """What the clock shows where that is logged, for what is done again: see `processing_ms`."""
    job: str = ""
    """What tells this job from every other, see `SinkIdentity`."""
    staging: Staging | None = None
    """Where a sink may keep output until its commit, beside the checkpoints of the job."""
    mailbox: Mailbox[Any] = field(default_factory=Mailbox)
    """Where other threads leave results for this operator; see `on_mail`."""
    run_beside: Callable[[Callable[[], None]], None] = _run_at_once
    """Have a call made in another thread. The simulator makes it at a step that the seed draws.

    Whatever it raises ends the worker; its result goes into the mailbox.
    """
    run_async: Callable[[CoroutineStart], None] = _no_event_loop
    """Have a coroutine run in the event loop of the process, which is in another thread.

    All operators of a process share the loop. What the coroutine raises ends the worker; its results go
    into the mailbox. The simulator runs a loop of its own, whose turns the seed draws and whose clock is
    that of the simulation.
    """
    pass_time: Callable[[int | None, bool | None], Iterable[Step]] = _nobody_behind
    """Tell those behind that event time has advanced to a watermark, or that the input has become idle or
    active again: for operators with `holds_time`."""

    @property
    def processing_ms(self) -> int:
        """The wall clock in milliseconds since 1970, as what is given out may depend on it.

        Raises UserCodeError where what is done again could see another time.
        """
        if self.read_clock is not None:
            return self.read_clock()
        self.check_clock()
        return int(self.now() * 1000)

    def check_clock(self) -> None:
        """Raise UserCodeError unless what is given out may depend on the clock."""
        if self.repeats and self.read_clock is None:
            raise UserCodeError(
                f"operator {self.label} asks for the clock, and its class does not show that it does: with "
                'the restart scope "replay" what the clock shows is logged for classes alone that call '
                "ctx.processing_time or ctx.set_processing_timer in a method of their own"
            )


class Member(ABC):
    """What may have state in a subtask, under a uid: an operator, or the input that reads a source."""

    def __init__(self, ctx: OperatorContext) -> None:
        self.ctx = ctx

    def open(self) -> None:
        """Called once, after `restore` and before the first record."""

    def snapshot(self) -> Mapping[str, Section]:
        """State by section, as of now; later changes must not show.

        Large state is copied later, by the thread that stores it: see `minirt.state.frozen`.
        """
        return {}

    def builds_on(self) -> Mapping[str, Collection[str]]:
        """By section, the files of older snapshots that the last one needs besides itself."""
        return {}

    def on_stored(self, path: str) -> None:
        """All that `snapshot` returned last, or `restore` was given last, is in this file.

        Later snapshots may build on it. Not called if the snapshot was not stored, or in a manifest.
        """

    def release(self) -> None:
        """Sinks: let the next `prepare` hand over also what was held back."""

    def prepare(self, checkpoint_id: int) -> Prepared | None:
        """Sinks: hand over the output since the last call."""
        return None

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        """Take over state of an old subtask. `exact` as in RestorePart.

        Called once for each file that the state of the old subtask is in, the oldest first: what it
        holds of a key replaces what there was.
        """

    def close(self) -> None:
        """Called once when the subtask ends in an orderly way."""


class Operator(Member):
    """One operator in one subtask: batches in, batches out through `ctx.emit`.

    Who has a batch owns its records: an operator may do as it likes with those that it gets, and nobody
    else may know those that it emits. So it takes what functions of the user hand over into its custody.

    Methods that may take long are iterators of nothing: the subtask steps through them, and its worker
    looks around between steps. Whatever state they leave at a step must be fit for a snapshot. A step that
    yields `Wait.FOR_MAIL` is followed by the next one once mail was handed over.
    """

    least_piece: ClassVar[int] = 1
    """Fewer records at a time cost it about as much as so many. Larger batches are cut into pieces that
    take a slice, but are never cut smaller than this."""

    holds_time: ClassVar[bool] = False
    """Whether it tells those behind by itself how far event time is, see `OperatorContext.pass_time`.

    It then must, but for the end of event time, which they hear of behind `on_end`.
    """

    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        self.watermark: int | None = None

    @property
    def room(self) -> int | None:
        """How many more records it can take up now; None if any number.

        At 0 the subtask takes no records and lets no timers fire, but takes barriers. Mail must make room.
        """
        return None

    def process(self, batch: Batch, input_index: int) -> None:
        """Handle the records of one input."""

    def process_shared(self, batch: Batch, copied: Callable[[Batch], Batch]) -> None:
        """Handle records of the only input that others get as well.

        They must stay as they are, and what is emitted must have no part of them that can change. An
        operator may override this if there is less to copy than all of them.
        """
        self.process(copied(batch), 0)

    def on_watermark(self, watermark: int) -> Iterable[Step]:
        """Event time has advanced."""
        self.watermark = watermark
        return ()

    def on_idle(self, idle: bool) -> Iterable[Step]:
        """The input has become idle, or active again."""
        return ()

    def on_processing_time(self, now_ms: int) -> Iterator[Step] | None:
        """The clock has passed `next_processing_time`."""
        return None

    @property
    def next_processing_time(self) -> int | None:
        """When `on_processing_time` wants to be called, in milliseconds since 1970."""
        return None

    @property
    def due_at(self) -> float | None:
        """When `on_due` wants to be called, by the monotonic clock as the wall clock is set by now."""
        at = self.next_processing_time
        return None if at is None else self.ctx.monotonic() + at / 1000 - self.ctx.now()

    def on_due(self) -> Iterator[Step] | None:
        """The monotonic clock has passed `due_at`."""
        return self.on_processing_time(self.ctx.processing_ms)

    def on_mail(self) -> Iterator[Step] | None:
        """There is something in `ctx.mailbox`: take all of it. What waits there is in no snapshot but
        that which the operator itself returns; see `Mailbox.waiting`.
        """
        return None

    def on_end(self) -> Iterable[Step]:
        """All input has ended and the last watermark was handled. What is under way has to come first."""
        return ()


def user_error(
    label: str,
    error: BaseException,
    record: Any = None,
    raised: BaseException | None = None,
    otherwise: Any = None,
) -> MinirtError:
    """The error to raise when a function of the user raised `error`; see `Calling`, which raises it.

    `raised` is what it raised where `error` only stands for it. `otherwise` is shown if there is no record:
    those of the batch, or the names of its columns.

    Unless it is given, the record is taken from the innermost frame of minirt's own operators, where it
    is by convention a local variable called `record`, or what the iterator of a list called `upcoming`
    gave last: that costs nothing as long as nothing fails. A comprehension needs such an iterator, as from
    Python 3.12 on its own variable is gone once it has failed.
    """
    if raised is None and isinstance(error, MinirtError):
        return error
    culprit, raised = record, error if raised is None else raised
    for frame in _frames(raised) if record is None else ():
        if not frame.f_globals.get("__name__", "").startswith(_CALL_FUNCTIONS):
            continue
        if "record" in frame.f_locals:
            culprit = frame.f_locals["record"]
        elif "upcoming" in frame.f_locals:
            culprit = _given_last(frame.f_locals["upcoming"])
    if culprit is None and otherwise is not None:
        culprit = otherwise
    return UserCodeError(f"operator {label} failed on record {shown(culprit)}\n{_trace(raised)}")


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The frames that an error has passed, the innermost last."""
    yield from (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    cause = error.__cause__
    if isinstance(error, RuntimeError) and isinstance(cause, StopIteration | StopAsyncIteration):
        yield from _frames(cause)  # A generator of minirt has turned it into the other one.


def _given_last(upcoming: Iterator[Any]) -> Any:
    """The item that an iterator of a list gave last; None if it has come to the end of the list."""
    reduced: Any = upcoming.__reduce__()  # Iterators have no other way to say where they are.
    _, (items,), *position = reduced
    return items[position[0] - 1] if position else None


def chain_error(name: str, error: BaseException) -> MinirtError:
    """The error to raise when the operators of a chain raised `error`, and none of them said which one."""
    if isinstance(error, MinirtError):
        return error
    return UserCodeError(
        f"{name} failed: {type(error).__name__}: {text_of(error)}\n{_trace(error)}"
    )


def opening_error(label: str, error: BaseException) -> MinirtError:
    """The error to raise when an operator could not be opened because of `error`."""
    if isinstance(error, MinirtError):
        return error
    return UserCodeError(f"operator {label} could not be opened\n{_trace(error)}")


def end_error(
    label: str, problem: str, error: BaseException, kind: type[MinirtError] = MinirtError
) -> MinirtError:
    """The error to raise when a source or sink raised `error`; `problem` says what it could not do.

    It is no UserCodeError, which ends a job that is being prepared: what they reach may be down.
    """
    if isinstance(error, MinirtError):
        return error
    told = f"{label} {problem}: {text_of(error)}"
    if isinstance(error, OSError):  # Of a disk or a network: where it was raised tells nothing.
        return kind(told)
    return kind(f"{told}\n{_trace(error)}")


def text_of(error: BaseException) -> str:
    """What an error says, or its class where that raises or says nothing."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__}, which cannot be shown as text"


def shown(record: Any) -> str:
    """A record as messages show it, or the first ones of several."""
    if isinstance(record, Rows | Columns):
        first = record.slice(0, min(len(record), _SHOWN_MAX)).rows().records
        record = first[0] if len(first) == len(record) == 1 else first
    elif isinstance(record, pa.Array | pa.ChunkedArray | pa.RecordBatch):
        record = record.slice(0, _SHOWN_MAX).to_pylist()
    try:
        text = repr(record)
    except Exception:  # It may be of a class of the user.
        return f"a {type(record).__qualname__} whose repr fails"
    return text if len(text) <= RECORD_TEXT_MAX else text[:RECORD_TEXT_MAX] + "…"


def _trace(error: BaseException) -> str:
    """The traceback as text; what the user's class makes of it may fail."""
    return "".join(traceback.format_exception(error)).rstrip()
