"""The sources and sinks of a job, as its coordinator deals with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from minirt.errors import JobFailedError, MinirtError
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import OperatorNode
from minirt.io.base import (
    Committable,
    CommitterContext,
    Offset,
    SinkCommitter,
    SinkIdentity,
    Split,
    Staging,
)
from minirt.io.remembered import planned
from minirt.monitoring.logs import logger_of
from minirt.operators.common.calling import Reaching, ends_program
from minirt.protocol.manifest import CommittedOutput, Manifest, SinkHandles
from minirt.protocol.source_offsets import SourceOffsets

logger = logger_of("coordinator")

T = TypeVar("T")


class JobEnds:
    """Keeps what commits for the current generation, each for one sink.

    Without `begin`, which says for which one that is, sinks commit for nobody in particular.
    """

    def __init__(self, graph: ExecutionGraph, staging: Staging | None) -> None:
        self._nodes: dict[str, OperatorNode] = {}
        self.take_shape(graph)
        self._committers: dict[str, SinkCommitter] = {}
        self._staging = staging
        self._job, self._generation = "", 0
        self._committed: dict[str, int] = {}
        """The newest checkpoint whose output is known to be committed, by the uid of the sink."""
        self._goes_on = False
        """Whether the generation goes on from a checkpoint of this job."""

    def take_shape(self, graph: ExecutionGraph) -> None:
        """The job is planned like this from now on; its sources and sinks stay the same."""
        nodes = [node for vertex in graph.vertices for node in vertex.operators]
        self._nodes = {node.uid: node for node in nodes}

    def node(self, uid: str) -> OperatorNode:
        return self._nodes[uid]

    def build_on(self, job: str, manifest: Manifest | None) -> None:
        """Take over what a checkpoint knows as committed, if it is one of this job."""
        self._goes_on = manifest is not None and manifest.identity == job
        if manifest is not None and self._goes_on:
            for one in manifest.committed:
                self._remember(one.uid, one.checkpoint_id)

    def remember_committed(self, manifest: Manifest) -> None:
        """Take it for known that all output of this checkpoint was committed, if it is one of this job."""
        if self._goes_on:
            for held in manifest.sink_handles:
                if held.handles:  # Without any, nothing was committed for this checkpoint.
                    self._remember(held.uid, held.checkpoint_id)

    def with_committed(self, job: str, manifest: Manifest) -> Manifest:
        """Give the manifest with what is known as committed when it is stored."""
        known = tuple(CommittedOutput(*one) for one in sorted(self._committed.items()))
        return replace(manifest, identity=job, committed=known)

    def begin(self, job: str, generation: int) -> None:
        """A generation is prepared: what committed for an earlier one is closed."""
        if (job, generation) != (self._job, self._generation):
            self.close()
        self._job, self._generation = job, generation

    def committer(self, uid: str) -> SinkCommitter:
        """What commits for a sink in the current generation."""
        if uid not in self._committers:
            node, identity = self._nodes[uid], SinkIdentity(self._job, uid)
            place = (node.label, self._generation, self._staging)
            context = CommitterContext(identity, *place, self._committed.get(uid, 0))
            with Reaching(node.label, "could not open what commits"):
                self._committers[uid] = given(node.spec.writes_to).open_committer(context)
        return self._committers[uid]

    def commit(self, held: Sequence[SinkHandles]) -> None:
        """Have every sink publish its part."""
        for uid in self._sinks():
            if own := [part for part in held if part.uid == uid and part.handles]:
                with self._committing(uid):
                    self.committer(uid).commit(_committables(own))
                self._remember(uid, max(part.checkpoint_id for part in own))

    def commit_restored(self, uid: str, held: Sequence[SinkHandles]) -> None:
        with self._committing(uid):
            self.committer(uid).commit_restored(_committables(held))
        if self._goes_on:  # Else ids are those of checkpoints of another job.
            self._remember(uid, max(part.checkpoint_id for part in held))

    def plan_splits(self, uid: str) -> list[Split]:
        """The splits of a source."""
        node = self._nodes[uid]
        with Reaching(node.label, "could not plan its splits"):
            return planned(given(node.spec.reads_from), node.parallelism)

    def tell_sources(self, told: Sequence[SourceOffsets]) -> None:
        """Tell each source how far it is stored. Raises the first error once all were told."""
        offsets: dict[str, dict[str, Offset]] = {}
        for part in told:
            offsets.setdefault(part.uid, {}).update(part.offsets)
        errors = list[Exception]()
        for uid, known in offsets.items():
            node = self._nodes[uid]
            try:
                given(node.spec.reads_from).committed(known)
            except BaseException as error:
                if ends_program(error):
                    raise
                logger.warning("%s cannot take in how far it is stored: %s", node.label, error)
                known_error = error if isinstance(error, Exception) else None
                errors.append(known_error or MinirtError(f"{node.label} raised {error!r}"))
        errors.sort(key=lambda error: not isinstance(error, JobFailedError))
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Release what commits."""
        for uid in list(self._committers):
            self._close(uid)

    def _remember(self, uid: str, checkpoint_id: int) -> None:
        self._committed[uid] = max(checkpoint_id, self._committed.get(uid, 0))

    def _close(self, uid: str) -> None:
        committer = self._committers.pop(uid, None)
        if committer is None:
            return
        try:
            committer.close()
        except BaseException as error:
            if ends_program(error):
                raise
            label = self._nodes[uid].label
            logger.warning("what commits for %s could not be closed: %s", label, error)

    def _committing(self, uid: str) -> Reaching:
        return Reaching(self._nodes[uid].label, "could not commit")

    def _sinks(self) -> Iterator[str]:
        return (uid for uid, node in self._nodes.items() if node.spec.writes_to is not None)


def given(end: T | None) -> T:
    """The source or sink of an operator that has one."""
    assert end is not None
    return end


def _committables(held: Sequence[SinkHandles]) -> list[Committable]:
    return [Committable(part.checkpoint_id, handle) for part in held for handle in part.handles]
