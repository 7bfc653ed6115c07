"""What stages of event time expect: the records of each key and span, counted when it is over."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import ClassVar

from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    CutOf,
    Output,
    Records,
    StageKind,
    Stamped,
    Verdict,
    key_of,
    span_end,
)

Span = tuple[int, int]
"""A key, and the last millisecond of a span of event time."""


def spans_of(stage: Stage, records: Records) -> Counter[Span]:
    """How many of the records belong to each key and end of a span."""
    spans: Counter[Span] = Counter()
    for (path, time), n in records.items():
        spans[key_of(path, stage.keys), span_end(time)] += n
    return spans


class SpanStage(StageKind):
    """Gives out `(name, uid, key, end)` for each span, with a note of how many records it found."""

    keyed: ClassVar = True
    keeps_order: ClassVar = False

    @abstractmethod
    def open_spans(self, cut: CutOf) -> Counter[Span]:
        """The spans in its stored state, with the records that each has seen."""

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return Counter(self._fired(uid, span) for span in spans_of(stage, consumed[0]))

    def at_cut(self, cut: CutOf) -> Records:
        """What came of the spans that are no longer in state."""
        spans, left = spans_of(cut.stage, cut.consumed[0]), self.open_spans(cut)
        if cut.exactly_once:  # Otherwise a record that is repeated may open a span once more.
            wanted = Counter({span: spans[span] for span in left})
            cut.compare(f"the state of {cut.uid}", left, wanted)
        return Counter(self._fired(cut.uid, span) for span in spans if span not in left)

    def judge(self, output: Output, verdict: Verdict) -> None:
        wanted = spans_of(output.stage, output.consumed)
        found: dict[Span, list[int]] = defaultdict(list)
        for _, _, key, end, count in output.notes:
            found[key, end].append(count)
        for span, counts in found.items():
            all_once = set(counts) == {wanted[span]}
            if (output.exactly_once and not all_once) or sum(counts) < wanted[span]:
                where = f"{self.name} {(output.uid, *span)}"
                verdict.wrong.append(f"{where} found {counts} records, not {wanted[span]}")

    def _fired(self, uid: str, span: Span) -> Stamped:
        return ((self.name, uid, *span), span[1])
