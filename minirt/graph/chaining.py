"""When two operators run as one: the single answer that planner and plan printer share."""

from __future__ import annotations

from minirt.graph.job_graph import OperatorNode
from minirt.graph.partitioning import Partitioning


def chain_break(
    partitioning: Partitioning,
    tag: str | None,
    source: OperatorNode,
    target: OperatorNode,
    *,
    target_inputs: int,
) -> str | None:
    """Why `target` cannot run in the chain of `source`; None if it can.

    `target_inputs` counts the edges into the target. What else consumes the output of the source does not
    matter: each consumer is a branch of the chain by itself, or behind a link.
    """
    if tag is not None:
        return "side outputs are sent over channels"
    if partitioning.unchained is not None:
        return partitioning.unchained
    if source.parallelism != target.parallelism:
        return f"parallelism changes from {source.parallelism} to {target.parallelism}"
    if target_inputs != 1:
        return f"{target.label} has {target_inputs} input edges"
    if target.spec.gathers is not None:
        return f"{target.label} gathers batches of {target.spec.gathers.size} records"
    if not target.chain:
        return f"{target.label} has chain=False"
    return None
