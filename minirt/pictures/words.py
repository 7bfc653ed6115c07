"""What a picture says, in words: for people who read, listen or search."""

from __future__ import annotations

from collections.abc import Sequence

from minirt.pictures.critical_path import Step
from minirt.pictures.timeline import Timeline


def duration(seconds: float) -> str:
    """With three digits or so."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"


def size(bytes: int) -> str:
    """As people say it."""
    if bytes < 10_000:
        return f"{bytes:,} bytes"
    if bytes < 10_000_000:
        return f"{bytes / 1000:,.0f} kB"
    return f"{bytes / 1e6:,.0f} MB"


def heading(timeline: Timeline) -> str:
    """What it is a picture of."""
    return f"{numbered(timeline)} of {timeline.job}, {timeline.mode}"


def numbered(timeline: Timeline) -> str:
    """What it is, with its number."""
    kind = "final checkpoint" if timeline.kind == "final" else timeline.kind
    return f"{kind} {timeline.checkpoint_id}"


def verdict(timeline: Timeline, path: Sequence[Step]) -> str:
    """The longest step, and what it is of the whole."""
    took = f"The checkpoint took {duration(timeline.took)}."
    if timeline.is_line:
        took += f" {line_in_words(timeline)}"
    if not path or timeline.took <= 0:
        return took
    longest = max(path, key=lambda step: step.duration)
    share = longest.duration / timeline.took
    return f"{took} {share:.0%} of it: {step_in_words(timeline, longest)}."


def line_in_words(timeline: Timeline) -> str:
    """What a checkpoint is made of that has no barriers."""
    captured = sum(lane.captured_bytes for lane in timeline.lanes)
    transit = f", with {size(captured)} in transit between them" if captured else ""
    return (
        "It is made of the newest local snapshots that fit together, the oldest taken "
        f"{duration(timeline.triggered)} before{transit}."
    )


def step_in_words(timeline: Timeline, step: Step) -> str:
    """One step of the critical path, without a full stop."""
    lane = "the coordinator" if step.lane is None else timeline.lanes[step.lane].name
    sender = "" if step.sender is None else timeline.lanes[step.sender].name
    time = duration(step.duration)
    match step.kind:
        case "order" if timeline.is_line:
            return f"{time} until {lane} took the coordinator's order to store what is in transit"
        case "last mark":
            return f"{time} until the mark of {sender} was at {lane}, which ends what is in transit"
        case "order":
            return f"{time} until {lane} took the coordinator's order, which waits for a record in work"
        case "output queue":
            return f"{time} until the barrier of {sender} was at {lane}: in the output queue, on the way"
        case "input queue":
            return f"{time} in the input queue of {lane}, behind the records of {sender}"
        case "timeout":
            return f"{time} until the timeout of the mode let barriers overtake at {lane}"
        case "sync":
            return f"{time} for the synchronous part of the snapshot of {lane}"
        case "last barrier":
            return f"{time} at {lane} behind the last barrier, that of {sender}"
        case "own barriers":
            return f"{time} until the barriers of {lane} had left its output queues"
        case "uploader" if timeline.is_line:
            return f"{time} until the uploader had time for what is in transit to {lane}"
        case "uploader":
            return f"{time} until the uploader had time for the snapshot of {lane}"
        case "async" if timeline.is_line:
            return f"{time} to store what is in transit to {lane}"
        case "async":
            return f"{time} to store the snapshot of {lane}"
        case "answer":
            return f"{time} until the coordinator heard that {lane} was done"
        case "manifest":
            return f"{time} to store the manifest"


def path_in_words(timeline: Timeline, path: Sequence[Step]) -> list[str]:
    """The critical path, a line a step, in order."""
    return [f"{step_in_words(timeline, step)}" for step in path]
