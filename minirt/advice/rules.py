"""The rules of `minirt advise`, in the order of the decision flow: figures in, advice out.

First: is there backpressure, at which operator, since when, and is it skew? Then: what do checkpoints spend
their time on? Last: what of it would another setting change, or must the job be redesigned? The page
docs/advice.md says the same in words, with each threshold. A healthy job gets no advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

from minirt.advice.figures import Figures
from minirt.advice.pressure import Pressure, pressure
from minirt.monitoring.load import JobSetup, OperatorLoad
from minirt.pictures.words import duration, size

Topic = Literal[
    "skew",
    "slow subtask",
    "parallelism",
    "large records",
    "debloat",
    "unaligned",
    "timeout",
    "long calls",
    "state",
    "storage",
    "interval",
    "redesign",
]

LONG_S = 0.5
"""Checkpoints up to this are quick, whatever they spend their time on."""
LONG_PART_OF_INTERVAL = 0.1
"""So are those that take up to this part of the interval."""
DOMINATES = 0.5
"""A stage with this part of the duration is what the checkpoint spends its time on."""
CROWDED_PART_OF_INTERVAL = 0.8
"""With checkpoints this long, the job hardly does anything without one under way."""
TARGET_BUSY_MS = 700
"""What an operator should be busy at most, in milliseconds of a second, to have room for peaks."""
DEBLOAT_S = 1.0
"""The target of debloating that is proposed, as a start."""
DEBLOAT_S_MIN = 0.1
"""The smallest target that is proposed: queues that hold less leave subtasks idle."""
STRAIGHT_DEBLOAT_S = 0.1
"""The same for queues whose records no barrier overtakes, in a job where barriers overtake all others."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do. `option` is what to set, empty where no setting helps."""

    topic: Topic
    title: str
    evidence: tuple[str, ...]
    option: str
    effect: str


def advise(figures: Figures) -> list[Advice]:
    """What to do about the job, the most important first; nothing for a healthy one."""
    found = pressure(figures.load)
    return [advice for rule in RULES for advice in rule(figures, found)]


def slow(figures: Figures) -> bool:
    """Whether its checkpoints take long, or too long to complete."""
    if any(one.expired for one in figures.checkpoints):
        return True
    interval_s = 0.0 if figures.setup is None else figures.setup.interval_s
    return figures.duration_s > max(LONG_S, LONG_PART_OF_INTERVAL * interval_s)


def _on_bottleneck(figures: Figures, found: Pressure | None) -> Iterator[Advice]:
    """Backpressure: whose fault, and what takes it away."""
    if found is None:
        return
    at, evidence = found.bottleneck, found.evidence
    share = f"its busiest subtask takes {at.busiest_share:.0%} of the records"
    if found.skewed:
        one_key = at.busiest_share >= 0.9
        yield Advice(
            "redesign" if one_key else "skew",
            f"{at.name}: some keys have most of the records",
            (*evidence, f"{share}, where 1/{at.parallelism} would be even"),
            "",
            "More parallelism does not help: all records of a key go to one subtask. Sum up before the "
            "key_by, or add a part to the key and bring the results together behind.",
        )
    elif found.one_slow:
        yield Advice(
            "slow subtask",
            f"{at.name}: one subtask is slower than the others",
            (*evidence, f"{share}, so it is not the keys"),
            "",
            "Look at what that subtask waits for: its machine, its files, the system that it calls.",
        )
    elif at.busy_ms >= TARGET_BUSY_MS:
        wanted = _parallelism_for(found)
        lasting = "lasts" if found.lasting else "comes and goes"
        yield Advice(
            "parallelism",
            f"{at.name} is too slow for what comes in; the backpressure {lasting}",
            evidence,
            f"parallelism={wanted} for {at.operator}, or a quicker function",
            f"From {at.parallelism} to {wanted} subtasks it would be busy for about "
            f"{TARGET_BUSY_MS} ms of a second, if the machine has the cores.",
        )
    if found.stuck:
        yield Advice(
            "large records",
            "single records emit more than memory and disk have room for",
            (*evidence, "barriers wait as well while a record is stuck"),
            "limits.spill_bytes_max",
            "With room on disk, a barrier need not wait until the receivers have taken all of it.",
        )


def _parallelism_for(found: Pressure) -> int:
    """What comes in now, and what would if nobody had to wait, at `TARGET_BUSY_MS` each."""
    at = found.bottleneck
    held_back = min(0.9, max(one.backpressured_ms for one in found.waiting) / 1000)
    return max(
        at.parallelism + 1, ceil(at.parallelism * at.busy_ms / TARGET_BUSY_MS / (1 - held_back))
    )


def _on_barriers(figures: Figures, found: Pressure | None) -> Iterator[Advice]:
    """Barriers that wait in queues: start delay and alignment as a share of the duration."""
    if not slow(figures) or figures.setup is None:
        return
    waits = ("start_delay", "alignment")
    if figures.completed and figures.share(*waits, "answer") < DOMINATES:
        return
    if not figures.completed and found is None:
        return
    if figures.share(*waits) < DOMINATES and figures.completed:
        yield from _on_long_calls(figures, found, (*_checkpoints(figures), *_waiting(figures)))
        return
    setup, waited_s = figures.setup, figures.seconds(*waits)
    if not figures.completed:
        waited_s = figures.duration_s
    evidence = (*_checkpoints(figures), *_waiting(figures))
    if setup.mode == "unaligned":
        straight = None if setup.debloat_s is not None else _behind_straight(figures)
        elsewhere = figures.completed and figures.share(*waits) < DOMINATES
        if straight is None or elsewhere:
            yield from _on_long_calls(figures, found, evidence)
        else:
            yield _not_overtaken(straight, evidence)
        return
    if setup.debloat_s is None:
        yield from _on_debloating(figures, setup, found, waited_s, evidence)
    topic: Topic = "unaligned"
    option = "checkpointing.mode=unaligned"
    title = "let barriers overtake the data"
    if (found is not None and not found.lasting) or setup.mode == "aligned_with_timeout":
        topic, option = "timeout", "checkpointing.mode=aligned_with_timeout, with a timeout"
        title = "let barriers overtake the data once a checkpoint takes long"
    left = "Checkpoints complete whatever lies in the queues."
    if figures.completed:
        left_s = max(0.0, figures.duration_s - waited_s)
        left = (
            f"Without that wait a checkpoint takes about {duration(left_s)} instead of "
            f"{duration(figures.duration_s)}."
        )
    queued = _queued(figures)
    yield Advice(
        topic,
        title,
        evidence,
        option,
        f"{left} It writes up to {size(queued)} in flight more. A single call "
        "of a slow function still holds a barrier up.",
    )
    if setup.debloat_s is not None and found is not None and found.lasting:
        yield _redesign(found, evidence)


def _on_debloating(
    figures: Figures,
    setup: JobSetup,
    found: Pressure | None,
    waited_s: float,
    evidence: tuple[str, ...],
) -> Iterator[Advice]:
    """Smaller queues, if barriers would then wait for at most half as long as now.

    An expired checkpoint shows only that the wait is longer than its timeout, so the proposal has to
    come below the timeout itself.
    """
    hops = 1 if found is None else max(1, len(found.waiting))
    target_s = DEBLOAT_S
    while hops * target_s > waited_s / 2:
        target_s /= 2
        if target_s < DEBLOAT_S_MIN:
            return
    where = "one operator" if hops == 1 else f"{hops} operators"
    now = duration(waited_s) if figures.completed else f"more than {duration(setup.timeout_s)}"
    yield Advice(
        "debloat",
        "barriers wait behind data: let queues hold less of it",
        evidence,
        f"options.debloat={target_s:g}s",
        f"Queues hold what is processed in {target_s:g} s, at {where} on the way: "
        f"barriers would wait about {duration(hops * target_s)} instead of {now}.",
    )


def _behind_straight(figures: Figures) -> OperatorLoad | None:
    """The operator before which most waits, if no barrier overtakes some of it."""
    newest = figures.load[-1].operators if figures.load else ()
    longest = max(newest, key=lambda one: one.queued_bytes, default=None)
    return longest if longest is not None and longest.straight else None


def _not_overtaken(at: OperatorLoad, evidence: tuple[str, ...]) -> Advice:
    return Advice(
        "debloat",
        f"{at.name}: barriers wait behind records that they may not overtake",
        (*evidence, f"{size(at.queued_bytes)} wait there, from {', '.join(at.straight)}"),
        f"options.queues.{at.operator}.debloat={STRAIGHT_DEBLOAT_S:g}s",
        "Records go straight there, so at another parallelism the captured ones of a key would lose their "
        f"order. Its queues would hold what it processes in {STRAIGHT_DEBLOAT_S:g} s, and barriers wait no "
        "longer. They wait for nothing behind key_by, behind forward(ordered=False) or rebalance() if the "
        "order does not matter, or if both run in one chain.",
    )


def _on_long_calls(
    figures: Figures, found: Pressure | None, evidence: tuple[str, ...]
) -> Iterator[Advice]:
    """Barriers overtake, or need not, and all the same wait: for single calls, or where none overtakes."""
    if found is not None and found.stuck:
        return  # In a record that emits too much, which is said already.
    yield Advice(
        "long calls",
        "checkpoints wait for single calls of a function: nothing overtakes the record in work",
        evidence,
        "",
        f"{figures.completed[-1].slowest if figures.completed else 'A subtask'} should do less in one "
        "call: yield results one by one, or have slow calls made beside (ctx.run_beside). Barriers cannot "
        "overtake either on an edge of an impure partition_custom or of forward(), see minirt plan.",
    )
    if found is not None and found.lasting:
        yield _redesign(found, evidence)


def _redesign(found: Pressure, evidence: tuple[str, ...]) -> Advice:
    at = found.bottleneck
    return Advice(
        "redesign",
        "no checkpoint setting takes this backpressure away",
        (*found.evidence, *evidence),
        "",
        f"It lasts, and what could be set is set. {at.name} must do less for each record, do it for "
        "many records at once (map_batches), or run at a higher parallelism.",
    )


def _on_state(figures: Figures, found: Pressure | None) -> Iterator[Advice]:
    """The snapshot itself: its synchronous part, storing it, and the manifest."""
    if not slow(figures) or not figures.completed:
        return
    evidence = _checkpoints(figures)
    held = max(one.state_bytes for one in figures.completed)
    if figures.share("sync") >= DOMINATES:
        yield Advice(
            "state",
            "the synchronous part takes most of the time, in which nothing is processed",
            (*evidence, f"synchronous part: {figures.share('sync'):.0%}, {size(held)} of state"),
            "",
            "Spread the state over more subtasks, or keep less of it: the part falls in proportion.",
        )
    elif figures.share("async", "rest") >= DOMINATES:
        times = figures.seconds("async")
        rate = held / times if times > 0 else 0.0
        yield Advice(
            "storage",
            "storing takes most of the time: the storage is slow, or the state large",
            (
                *evidence,
                f"asynchronous part: {duration(times)} for {size(held)} ({size(int(rate))} a second)",
                f"manifest: {duration(figures.seconds('rest'))}",
            ),
            "checkpointing.interval",
            "Barriers that overtake would make it longer, as they add data. Use a quicker storage, more "
            "subtasks that write at a time, or a longer interval.",
        )


def _on_interval(figures: Figures, found: Pressure | None) -> Iterator[Advice]:
    """Checkpoints that put the next one off, or that expire."""
    setup, expired = figures.setup, sum(one.expired for one in figures.checkpoints)
    if setup is None or not slow(figures):
        return
    if expired:
        yield Advice(
            "interval",
            "checkpoints expire: a restart would repeat all work since the last one that completed",
            (f"{expired} of {len(figures.checkpoints)} expired after {duration(setup.timeout_s)}",),
            f"checkpointing.timeout above {duration(setup.timeout_s)}",
            "Only until the cause is gone: repeated work makes the backpressure worse, and the next "
            "checkpoint slower.",
        )
    elif figures.completed and figures.duration_s > CROWDED_PART_OF_INTERVAL * setup.interval_s:
        wanted = 2 * figures.duration_s
        yield Advice(
            "interval",
            "checkpoints take most of their interval, so each puts the next one off",
            (*_checkpoints(figures), f"interval: {duration(setup.interval_s)}"),
            f"checkpointing.interval={wanted:.2g}s",
            "Behind each checkpoint there is none for as long as it took, so they come no more often now. "
            f"A restart repeats up to {duration(wanted)}.",
        )


RULES: tuple[Callable[[Figures, Pressure | None], Iterator[Advice]], ...] = (
    _on_bottleneck,
    _on_barriers,
    _on_state,
    _on_interval,
)


def _checkpoints(figures: Figures) -> tuple[str, ...]:
    if not figures.completed:
        longest = duration(figures.duration_s)
        return (
            f"none of the last {len(figures.checkpoints)} checkpoints has completed; "
            f"the longest was under way for {longest}",
        )
    took = duration(figures.duration_s)
    if len(figures.completed) == 1:
        return (f"the last checkpoint took {took}",)
    return (f"the last {len(figures.completed)} checkpoints took {took} (median)",)


def _waiting(figures: Figures) -> tuple[str, ...]:
    if not figures.completed:
        return ()
    delay, alignment = figures.seconds("start_delay"), figures.seconds("alignment")
    told = (
        f"start delay: {figures.share('start_delay'):.0%} of it, {duration(delay)}; "
        f"alignment: {figures.share('alignment'):.0%}, {duration(alignment)}"
    )
    if figures.share("answer") < DOMINATES / 2:
        return (told,)
    answer = duration(figures.seconds("answer"))
    return (told, f"until the process could answer: {figures.share('answer'):.0%} of it, {answer}")


def _queued(figures: Figures) -> int:
    return max(
        (sum(one.queued_bytes for one in entry.operators) for entry in figures.load), default=0
    )
