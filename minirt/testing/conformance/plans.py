"""Plans of jobs: which operators there are, how records travel, and how forms of a job differ."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.testing.conformance.sources import OUT_OF_ORDER_MS


@dataclass(frozen=True)
class Stage:
    """One operator, or a few that belong together. `inputs` are indexes of earlier stages."""

    kind: str
    """The name of a `StageKind`."""
    inputs: tuple[int, ...]
    edge: str
    """The name of an `EdgeKind`."""
    chain: bool
    keys: int
    parallelism: tuple[int, ...]
    """In each form of the job."""
    edits: tuple[Edit, ...] = ()
    """In each form of the job; none if all are written alike."""
    named: bool = True
    """Whether it is given a uid."""

    def edit(self, form: int) -> Edit:
        """How it is written in a form of the job."""
        return self.edits[form] if self.edits else Edit(self.edge, self.chain)


@dataclass(frozen=True)
class Edit:
    """What may be edited of a stage; nothing of it changes what must come out.

    `more` is how many operators that change nothing are in front of it.
    """

    edge: str
    chain: bool
    more: int = 0


@dataclass(frozen=True)
class Plan:
    stages: tuple[Stage, ...]
    splits: int
    count: int
    forms: int
    watermark_bound_ms: int = OUT_OF_ORDER_MS
    max_drift_ms: int | None = None
    """How far splits of sources may be ahead of the slowest one; None if they do not wait."""
    watermarks: str = "bounded"
    """The name of a kind of watermarks in `minirt.testing.conformance.watermarks`."""
    stretch: int | None = None
    """How many keys a snapshot writes at least, so that it builds on older ones; None: as in jobs, where it
    writes all of so few."""

    @property
    def edited(self) -> bool:
        """Whether its forms differ in more than their parallelism."""
        return any(stage.edits for stage in self.stages)

    @property
    def named(self) -> bool:
        """Whether all of its operators are given uids."""
        return all(stage.named for stage in self.stages)

    @property
    def sinks(self) -> list[int]:
        used = {i for stage in self.stages for i in stage.inputs}
        return [i for i in range(len(self.stages)) if i not in used]
