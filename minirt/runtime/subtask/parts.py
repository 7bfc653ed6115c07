"""What a subtask is, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.restart_commands import FallenBack
from minirt.runtime.channels.numbered import Repetition
from minirt.runtime.channels.output import Outputs
from minirt.runtime.input.input import Input
from minirt.runtime.subtask.chain import Chain
from minirt.runtime.subtask.members import Members
from minirt.runtime.subtask.tracing import CheckpointTracer


@dataclass(frozen=True, slots=True)
class Identity:
    """Which subtask it is, in which generation. `head` is the uid of the first operator of its vertex.

    `name` is for people.
    """

    id: SubtaskId
    generation: int
    head: str
    name: str


@dataclass(frozen=True, slots=True)
class SubtaskParts:
    """Records go from the input through the chain to the outputs; `members` are those with state."""

    identity: Identity
    input: Input
    chain: Chain
    members: Members
    outputs: Outputs
    metrics: SubtaskMetrics
    tracer: CheckpointTracer | None = None
    """Notes what checkpoints do, if anybody wants to know."""
    fallen_back: FallenBack | None = None
    """Where it begins if it has come back alone."""
    repetition: Repetition | None = None
    """What it does again then that others have seen; of a subtask that may come back alone."""
