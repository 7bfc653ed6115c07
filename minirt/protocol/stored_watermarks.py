"""How far event time had come at a checkpoint, and what of that holds for the subtasks of a restored job.

A restored watermark must not be ahead of what was seen before: records that were on time must not be
late. At unchanged parallelism and partitioning each subtask and each of its channels go on where they
were. Otherwise records in flight and state of several old subtasks may come together in a new one: so
the least watermark of all old subtasks holds for each of them, and the least of all old channels of a
link for each channel that it has now.

Not restored: idleness, as a source that is read again first counts as active; and the end of event
time, as a source that has ended tells it again, and one that was drained goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minirt.graph.execution import ExecutionGraph, Link, SubtaskId, Vertex
from minirt.protocol.watermarks import MAX_WATERMARK


@dataclass(frozen=True, slots=True)
class LinkWatermarks:
    """The watermarks of the channels of one link that end at one subtask, in the order of senders."""

    link: str
    partitioning: str
    senders: int
    """How many the link had, whether or not they had a channel to this subtask."""
    watermarks: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class SubtaskWatermarks:
    """The watermark of one subtask and of its inputs; None before the first one.

    `head` is the uid of the first operator of its chain.
    """

    head: str
    subtask: int
    watermark: int | None
    inputs: tuple[LinkWatermarks, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoredWatermarks:
    """What a subtask starts from: its watermark, and those of its channels in the order of its gate."""

    watermark: int | None
    channels: tuple[int | None, ...] = ()


WatermarkPlan = Mapping[SubtaskId, RestoredWatermarks]


def plan_watermarks(stored: Sequence[SubtaskWatermarks], graph: ExecutionGraph) -> WatermarkPlan:
    """What each subtask of a restored job may start from; nothing for vertices with another input."""
    plan: dict[SubtaskId, RestoredWatermarks] = {}
    for vertex in graph.vertices:
        old = [one for one in stored if one.head == vertex.operators[0].uid]
        links = {graph.link_key(link): link for link in graph.inputs_of(vertex.id)}
        if old and all(links.keys() <= {link.link for link in one.inputs} for one in old):
            plan |= {
                subtask: _restored(old, vertex, links, subtask.index)
                for subtask in vertex.subtasks()
            }
    return plan


def _restored(
    old: Sequence[SubtaskWatermarks], vertex: Vertex, links: Mapping[str, Link], index: int
) -> RestoredWatermarks:
    dealt_alike = all(
        link.partitioning == links[link.link].kind
        for one in old
        for link in one.inputs
        if link.link in links
    )
    if len(old) == vertex.parallelism and dealt_alike:
        own = [one for one in old if one.subtask == index]
    else:
        own = list(old)
    channels: list[int | None] = []
    for key, link in links.items():
        count = sum(channel.receiver == index for channel in link.channels())
        channels += _channels(_of_link(own, key), _of_link(old, key), link.senders, count)
    return RestoredWatermarks(_least(one.watermark for one in own), tuple(channels))


def _of_link(subtasks: Sequence[SubtaskWatermarks], key: str) -> list[LinkWatermarks]:
    return [link for one in subtasks for link in one.inputs if link.link == key]


def _channels(
    own: Sequence[LinkWatermarks], all_old: Sequence[LinkWatermarks], senders: int, count: int
) -> list[int | None]:
    """The watermarks of `count` channels to a subtask that goes on from those whose inputs are `own`."""
    if len(own) == 1 and own[0].senders == senders and len(own[0].watermarks) == count:
        return [_least([watermark]) for watermark in own[0].watermarks]
    return [_least(watermark for old in all_old for watermark in old.watermarks)] * count


def _least(watermarks: Iterable[int | None]) -> int | None:
    """The least of them, None if one is not known. Where event time has ended, nothing is to come."""
    known = []
    for watermark in watermarks:
        if watermark is None:
            return None
        if watermark != MAX_WATERMARK:
            known.append(watermark)
    return min(known, default=None)
