"""The execution graph in words: what runs as one, how records travel and are checkpointed, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minirt.graph.chaining import chain_break
from minirt.graph.comebacks import keeps_clock, keeps_order, why_not_alone
from minirt.graph.crossings import Crossings
from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.graph.job_graph import OperatorNode
from minirt.graph.lateness import lost_lateness
from minirt.protocol.topology import Order


def explain(
    execution: ExecutionGraph, mode_name: str | None = None, *, comebacks: bool = False
) -> str:
    """The plan of a job as text, the same for the same job; ends without a newline.

    With `comebacks`, it says which vertices have workers that may come back alone.
    """
    return "\n".join(_lines(execution, mode_name, comebacks))


def _lines(execution: ExecutionGraph, mode_name: str | None, comebacks: bool) -> Iterator[str]:
    subtasks = sum(vertex.parallelism for vertex in execution.vertices)
    channels = sum(_channel_count(link) for link in execution.links)
    yield (
        f"job {execution.name}: {_count(len(execution.vertices), 'vertex', 'vertices')}, "
        f"{_count(subtasks, 'subtask')}, {_count(len(execution.links), 'link')}, "
        f"{_count(channels, 'channel')}"
    )
    if mode_name is not None:
        yield f"checkpoint mode: {mode_name}"
    crossings, lost = Crossings(execution), lost_lateness(execution)
    for vertex in execution.vertices:
        yield ""
        yield (
            f"vertex {vertex.id}: parallelism {vertex.parallelism}, "
            f"max parallelism {vertex.max_parallelism}"
        )
        yield from _operators(vertex, crossings, lost)
        if comebacks:
            yield f"    if a worker is gone: {_comeback(execution, vertex)}"
        for link in execution.outputs_of(vertex.id):
            yield from _link(execution, link, crossings)


def _operators(vertex: Vertex, crossings: Crossings, lost: Mapping[str, str]) -> Iterator[str]:
    listed = [
        f"{margin}{node.name}"
        for margin, node in zip(vertex.margins, vertex.operators, strict=True)
    ]
    names = max(map(len, listed))
    kinds = max(len(node.spec.kind) for node in vertex.operators)
    for name, node in zip(listed, vertex.operators, strict=True):
        line = f"    {name:{names}}  {node.spec.kind:{kinds}}  uid {node.uid}"
        yield f"{line}{node.spec.details}"
        crossing = crossings.at_operator(node)
        if crossing is not None:
            yield f"        {crossing}"
        if node.uid in lost:
            yield f"        {lost[node.uid]}"


def _link(execution: ExecutionGraph, link: Link, crossings: Crossings) -> Iterator[str]:
    source = execution.vertices[link.source]
    sender = next(node for node in source.operators if node.uid == link.source_uid)
    receiver = execution.vertices[link.target].operators[0]
    only_end = sender is source.operators[-1] and not any(source.margins)
    origin = "" if only_end else f" from {sender.label}"
    output = "" if link.tag is None else f" side output {link.tag}"
    yield (
        f"    =>{origin}{output} to vertex {link.target} input {link.target_input}: "
        f"{link.partitioning.described}, {_count(_channel_count(link), 'channel')}"
    )
    yield f"       not chained: {_why(execution, link, sender, receiver)}"
    crossing = crossings.on_link(link)
    if crossing is not None:
        yield f"       {crossing}"
    target_s = execution.vertices[link.target].queue_s
    if target_s is not None:
        yield f"       queues hold what is consumed in {1000 * target_s:g} ms, unless options say otherwise"
    if link.capturable:
        yield "       records that a barrier overtakes: captured"
        dealt = link.partitioning.in_flight_described
        yield f"       captured records at another parallelism: {dealt}"
    elif link.order is Order.STRAIGHT:
        unordered = link.partitioning.unordered
        yield (
            "       not overtaken by barriers: records of a key would lose their order at another "
            f"parallelism{f'; {unordered} if it does not matter' if unordered else ''}"
        )
        yield "       barriers wait until its queues are consumed; options.debloat keeps them short"
    else:
        yield f"       not overtaken by barriers: {link.partitioning.why_uncaptured}"


def _why(
    execution: ExecutionGraph, link: Link, sender: OperatorNode, receiver: OperatorNode
) -> str | None:
    """Asks the same as the planner."""
    inputs = len(execution.inputs_of(link.target))
    return chain_break(link.partitioning, link.tag, sender, receiver, target_inputs=inputs)


def _comeback(execution: ExecutionGraph, vertex: Vertex) -> str:
    if why_not_alone(execution, vertex, "subtask") is None:
        return 'it comes back alone, with the restart scope "subtask"'
    why = why_not_alone(execution, vertex, "replay")
    if why is None:
        order = ", and logs the order of what it reads" if keeps_order(execution, vertex) else ""
        order += " and what the clock shows" if keeps_clock(vertex) else ""
        return (
            'it comes back alone, with the restart scope "replay" if functions are deterministic'
            + order
        )
    return f"the whole job restarts, as {why}"


def _channel_count(link: Link) -> int:
    return sum(len(link.receivers_of(sender)) for sender in range(link.senders))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
