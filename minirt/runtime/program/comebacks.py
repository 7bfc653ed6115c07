"""Whether workers of a job may come back alone, as its restart strategy asks."""

from __future__ import annotations

from collections.abc import Mapping

from minirt.errors import ConfigurationError
from minirt.graph.comebacks import alone_by_worker, why_not_alone
from minirt.graph.execution import ExecutionGraph
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.families import TakesLocalSnapshots
from minirt.protocol.ids import SubtaskId
from minirt.protocol.restarts import scope_of
from minirt.run_settings import RunSettings
from minirt.wording import given, named


def workers_alone(
    execution: ExecutionGraph,
    placement: Mapping[SubtaskId, int],
    settings: RunSettings,
    mode: CheckpointMode,
) -> dict[int, frozenset[SubtaskId]]:
    """The workers that may come back alone. Raises ConfigurationError if none may, and it was asked for."""
    scope = scope_of(settings.restart)
    if scope == "job":
        return {}
    asked = f'restart with scope="{scope}"'
    if settings.checkpointing is None or not isinstance(mode, TakesLocalSnapshots):
        raise ConfigurationError(
            f"{asked} needs {named('checkpointing')} with "
            f"{given('checkpointing.mode', 'uncoordinated')}: in other modes a snapshot fits those "
            "of the other subtasks only, which would all have to go back"
        )
    if settings.cluster is not None:
        raise ConfigurationError(
            f"{asked} needs workers on this machine: with a cluster the whole job restarts; leave scope out"
        )
    if scope == "replay" and mode.local_snapshots(settings.checkpointing.interval_s).induced:
        raise ConfigurationError(
            f"{asked} needs {given('checkpointing.mode', 'uncoordinated')}: in {mode.name}, marks "
            "that force snapshots would not come again"
        )
    alone = alone_by_worker(execution, placement, scope)
    if not alone:
        why = {
            v.id: why_not_alone(execution, v, scope) or "it shares its workers"
            for v in execution.vertices
        }
        reasons = "; ".join(f"vertex {vertex}: {reason}" for vertex, reason in why.items())
        raise ConfigurationError(
            f"{asked} has no effect: no worker may come back alone ({reasons})"
        )
    return alone
