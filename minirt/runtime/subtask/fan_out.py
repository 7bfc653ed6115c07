"""What an operator emits goes to several: to branches of its chain, and into links."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.custody import Custody
from minirt.operators.common.base import Emit
from minirt.runtime.subtask.intake import Intake


def fan_out(links: Sequence[Emit], branches: Sequence[Intake], custody: Custody) -> Emit:
    """Hands each batch to all links and to all branches.

    Links only pack what they get, so they may share it; but they hold it until then. A branch does with its
    records as it likes. So each branch gets records of its own: copies, but for one, which takes over those
    that are there if no link holds them.
    """
    alone: list[Emit] = [*links, *(branch.take for branch in branches)]
    if len(alone) < 2:
        return alone[0] if alone else _drop
    sharing, last = (branches, None) if links else (branches[:-1], branches[-1])
    copied = partial(_copy_of, custody)

    def emit(batch: Batch) -> None:
        for link in links:
            link(batch)
        for branch in sharing:
            branch.share(batch, copied)
        if last is not None:
            last.take(batch)

    return emit


def _copy_of(custody: Custody, batch: Batch) -> Batch:
    """A batch that its holder may change. Nobody can change the columns of Arrow."""
    if isinstance(batch, Columns):
        times = batch.timestamps
        return Columns(batch.table, None if times is None else times.copy())
    stamps = batch.timestamps
    return Rows(custody.part_all(batch.records), None if stamps is None else stamps.copy())


def _drop(batch: Batch) -> None:
    """Drop records that nobody asked for."""
