"""How far event time had come at a checkpoint, and what of that holds for the subtasks of a restored job.

A restored watermark must not be ahead of what was seen before: records that were on time must not be
late. At unchanged parallelism and partitioning each subtask and each of its channels go on where they
were. Otherwise records in flight and state of several old subtasks may come together in a new one: so
the least watermark of all old subtasks holds for each of them, and the least of all old channels of a
link for each channel that it has now. It also does behind a link that brings each subtask what some of
its senders have, as a rescale link does, if these are others, or start from the least themselves. For
operators that are chained now, the least of what they had holds.

Not restored: idleness, as a source that is read again first counts as active; and the end of event
time, as a source that has ended tells it again, and one that was drained goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from minirt.protocol.ids import SubtaskId
from minirt.protocol.topology import EdgeFacts, Topology, VertexFacts
from minirt.protocol.watermarks import MAX_WATERMARK


@dataclass(frozen=True, slots=True)
class LinkWatermarks:
    """The watermarks of the channels of one link that end at one subtask, in the order of senders."""

    link: str
    partitioning: str
    senders: int
    """How many the link had, whether or not they had a channel to this subtask."""
    watermarks: tuple[int | None, ...]
    unknown: int = 0
    """How many channels there are, if none has a watermark: these are as many as all channels of the link
    together, so `watermarks` leaves them out."""

    @staticmethod
    def of(
        link: str, partitioning: str, senders: int, channels: Sequence[int | None]
    ) -> LinkWatermarks:
        """The watermarks of these channels."""
        if any(watermark is not None for watermark in channels):
            return LinkWatermarks(link, partitioning, senders, tuple(channels))
        return LinkWatermarks(link, partitioning, senders, (), len(channels))

    @property
    def channels(self) -> tuple[int | None, ...]:
        """The watermark of each channel."""
        return self.watermarks or (None,) * self.unknown


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


def plan_watermarks(
    stored: Sequence[SubtaskWatermarks],
    topology: Topology,
    dealt_otherwise: Collection[str] = (),
) -> WatermarkPlan:
    """What each subtask of a restored job may start from; nothing for vertices with another input.

    `dealt_otherwise` are the keys of links that have another key or function than they had.
    """
    plan: dict[SubtaskId, RestoredWatermarks] = {}
    goes_on: dict[int, bool] = {}
    """By vertex: whether each subtask goes on where it was. New vertices are not in it."""
    fresh: set[int] = set()
    """Vertices that start without a watermark, although they had one."""
    for vertex in topology.vertices:
        old = _OldVertex(stored, vertex)
        links = {link.key: link for link in topology.links_into(vertex.id)}
        if not old.subtasks:
            continue
        if not old.had(links) or any(link.source in fresh for link in links.values()):
            fresh.add(vertex.id)
            continue
        goes_on[vertex.id] = old.goes_on(links, goes_on) and not links.keys() & {*dealt_otherwise}
        for subtask in vertex.subtasks():
            own = old.of(subtask.index) if goes_on[vertex.id] else []
            channels: list[int | None] = []
            for key, link in links.items():
                count = link.fan_in[subtask.index]
                known = _of_link(own, key) if goes_on.get(link.source, True) else []
                same = _same_channels(known, link.senders, count)
                channels += [old.least_of_link(key)] * count if same is None else same
            least = _least(one.watermark for one in own) if goes_on[vertex.id] else old.least
            plan[subtask] = RestoredWatermarks(least, tuple(channels))
    return plan


class _OldVertex:
    """What the operators of a vertex were at the checkpoint: one vertex, or several that it chains now."""

    def __init__(self, stored: Sequence[SubtaskWatermarks], vertex: VertexFacts) -> None:
        uids = {operator.uid for operator in vertex.operators}
        self.subtasks = [one for one in stored if one.head in uids]
        self._head = vertex.operators[0].uid
        self._parallelism = vertex.parallelism
        self._by_index: defaultdict[int, list[SubtaskWatermarks]] = defaultdict(list)
        for one in self.subtasks:
            self._by_index[one.subtask].append(one)
        self.least = _least(one.watermark for one in self.subtasks)
        self._least_of_link: dict[str, int | None] = {}

    def of(self, index: int) -> list[SubtaskWatermarks]:
        return self._by_index.get(index, [])

    def least_of_link(self, key: str) -> int | None:
        """The least watermark of all channels of a link: there are as many as senders times receivers."""
        if key not in self._least_of_link:
            of_link = _of_link(self.subtasks, key)
            self._least_of_link[key] = _least(one for old in of_link for one in old.channels)
        return self._least_of_link[key]

    def had(self, links: Mapping[str, EdgeFacts]) -> bool:
        """Whether each old subtask that read from channels read from these."""
        heads = [one for one in self.subtasks if one.head == self._head]
        return bool(heads) and all(
            links.keys() <= {link.link for link in one.inputs} for one in heads
        )

    def goes_on(self, links: Mapping[str, EdgeFacts], senders_go_on: Mapping[int, bool]) -> bool:
        """Whether what each subtask gets from now on is what it would have got."""
        heads = {one.head for one in self.subtasks}
        return len(self.subtasks) == self._parallelism * len(heads) and all(
            _goes_on(old, links[old.link], senders_go_on)
            for one in self.subtasks
            for old in one.inputs
            if old.link in links
        )


def _goes_on(old: LinkWatermarks, link: EdgeFacts, senders_go_on: Mapping[int, bool]) -> bool:
    """Whether a receiver's watermark is still behind all that comes over this link.

    One that has heard all senders is behind each of them, whichever sends what from now on.
    """
    if old.partitioning != link.kind:
        return False
    if len(old.channels) == old.senders:
        return True
    return old.senders == link.senders and senders_go_on.get(link.source, True)


def _of_link(subtasks: Sequence[SubtaskWatermarks], key: str) -> list[LinkWatermarks]:
    return [link for one in subtasks for link in one.inputs if link.link == key]


def _same_channels(
    own: Sequence[LinkWatermarks], senders: int, count: int
) -> list[int | None] | None:
    """The watermarks of a subtask's channels, if they are what they were."""
    if len(own) == 1 and own[0].senders == senders and len(own[0].channels) == count:
        return [_least([watermark]) for watermark in own[0].channels]
    return None


def _least(watermarks: Iterable[int | None]) -> int | None:
    """The least of them, None if one is not known. Where event time has ended, nothing is to come."""
    known = []
    for watermark in watermarks:
        if watermark is None:
            return None
        if watermark != MAX_WATERMARK:
            known.append(watermark)
    return min(known, default=None)
