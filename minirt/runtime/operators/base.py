"""What a running operator offers its subtask, and how failures of user code are reported."""

from __future__ import annotations

import traceback
from abc import ABC
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from minirt.data.batch import Batch
from minirt.errors import MinirtError, UserCodeError
from minirt.io.base import Prepared
from minirt.runtime.metrics import SubtaskMetrics
from minirt.state.sections import Section

Emit = Callable[[Batch], None]

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
    allow_pickle: bool
    emit: Emit
    side: Callable[[str], Emit]
    metrics: SubtaskMetrics = field(default_factory=SubtaskMetrics)


class Operator(ABC):
    """One operator in one subtask: batches in, batches out through `ctx.emit`.

    Methods that may take long are iterators of nothing: the subtask steps through them and looks at
    its mailbox between steps. Whatever state they leave at a step must be fit for a snapshot.
    """

    def __init__(self, ctx: OperatorContext) -> None:
        self.ctx = ctx
        self.watermark: int | None = None

    def open(self) -> None:
        """Called once, after `restore` and before the first record."""

    def process(self, batch: Batch, input_index: int) -> None:
        """Handle the records of one input."""

    def on_watermark(self, watermark: int) -> Iterable[None]:
        """Event time has advanced."""
        self.watermark = watermark
        return ()

    def on_processing_time(self, now_ms: int) -> Iterator[None] | None:
        """The clock has passed `next_processing_time`."""
        return None

    @property
    def next_processing_time(self) -> int | None:
        """When `on_processing_time` wants to be called, in milliseconds since 1970."""
        return None

    def on_end(self) -> Iterable[None]:
        """All input has ended and the last watermark was handled."""
        return ()

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


def user_error(label: str, error: BaseException, record: Any = None) -> MinirtError:
    """The error to raise when a function of the user raised `error`.

    Unless it is given, the record is taken from the innermost frame of minirt's own operators, where it
    is by convention a local variable called `record`: that costs nothing as long as nothing fails.
    """
    if isinstance(error, MinirtError):
        return error
    culprit = record
    for frame, _ in traceback.walk_tb(error.__traceback__) if record is None else ():
        is_ours = frame.f_globals.get("__name__", "").startswith("minirt.runtime.operators")
        if is_ours and "record" in frame.f_locals:
            culprit = frame.f_locals["record"]
    return UserCodeError(f"operator {label} failed on record {shown(culprit)}\n{_trace(error)}")


def opening_error(label: str, error: Exception) -> MinirtError:
    """The error to raise when an operator could not be opened because of `error`."""
    if isinstance(error, MinirtError):
        return error
    return UserCodeError(f"operator {label} could not be opened\n{_trace(error)}")


def shown(record: Any) -> str:
    """A record as messages show it."""
    text = repr(record)
    return text if len(text) <= RECORD_TEXT_MAX else text[:RECORD_TEXT_MAX] + "…"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
