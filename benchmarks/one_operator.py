"""One operator of one subtask, without a job around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from minirt.data.batch import Batch
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.common.base import Operator, OperatorContext


def alone(
    spec: OperatorSpec,
    *keys: str,
    by: KeySelector | None = None,
    emit: Callable[[Batch], None] = lambda batch: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Operator:
    """The operator, open, of records that are keyed by these columns at each input, or as `by` says."""
    ctx = OperatorContext(
        label=spec.kind,
        uid=spec.kind,
        subtask=0,
        parallelism=1,
        max_parallelism=128,
        generation=1,
        now=clock,
        allow_pickle=False,
        emit=emit,
        side=lambda tag: lambda batch: None,
        monotonic=clock,
        keys=(by or KeySelector(keys),) * spec.inputs,
    )
    operator = spec.build(ctx)
    operator.open()
    return operator


def exhaust(steps: Iterable[Any] | None) -> None:
    """Take all of these steps."""
    for _ in steps or ():
        pass


def memory_mb() -> int:
    """What this process holds in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 1_000_000
