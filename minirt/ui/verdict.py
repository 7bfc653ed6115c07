"""What holds a job up, in words: the rules of docs/metrics.md, applied to the figures of this moment.

Each rule is a function from `Facts` to sentences, and `RULES` names them in the order in which the page
shows what they say. Another rule is one more function there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from minirt.ui.reading import Plain

Level = Literal["good", "note", "bad"]

WAITS = 0.1
"""From this share of its time on, a subtask that waits for room for its output is held up."""
WORKS = 0.8
"""From this share of its time on, a subtask is busy enough to hold others up."""
SKEWED = 1.5
"""How many times its fair share of records the first subtask has where records are dealt unevenly."""
LONG_S = 1.0
"""A checkpoint that takes this long is said to wait for someone."""
RECENT_S = 60.0
"""A job that has restarted more than once, and last within this time, does so again and again."""
_LINE_MAX = 300


@dataclass(frozen=True, slots=True)
class Sentence:
    """`operator` is the id of the vertex that it is about."""

    level: Level
    text: str
    operator: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What rules look at. Operators, links and events are as the page shows them."""

    figures: Plain
    operators: Sequence[Plain]
    links: Sequence[Plain]
    under_way: Sequence[Plain] = ()
    events: Sequence[Plain] = ()
    live: bool = True


Rule = Callable[[Facts], Iterable[Sentence]]


def verdict(facts: Facts) -> list[Sentence]:
    """Everything that there is to say: the status, then what is bad, else in the order of the rules."""
    said = [(rule, sentence) for rule in RULES for sentence in rule(facts)]
    said.sort(key=lambda one: (one[0] is not of_status, one[1].level != "bad"))
    return [sentence for _, sentence in said]


def of_status(facts: Facts) -> Iterator[Sentence]:
    """A job that does not run, and why."""
    figures = facts.figures
    status = figures["status"]
    if status == "running" and facts.live:
        return
    cause = _cause(facts.events) or figures["last_failure"]
    failed = status in ("failed", "restarting")
    because = f": {in_short(cause)}" if cause and status != "finished" else ""
    yield Sentence("bad" if failed else "note", f"The job is {status}{because}.")


def of_throughput(facts: Facts) -> Iterator[Sentence]:
    """Who holds the others up."""
    known = {o["id"]: o for o in facts.operators if o["times"] is not None}
    if not known:
        if facts.live:
            yield Sentence("note", "There are no rates yet.")
        return
    slow = bottleneck(known, facts.links)
    if slow is not None:
        yield _holds_up(slow, known, facts.links)
        return
    top = max(known.values(), key=_busiest)
    share = _busiest(top)
    if share < WORKS:
        yield Sentence(
            "good",
            f"Nothing is held up: “{top['name']}” works most, {_percent(share)} of the time.",
            top["id"],
        )
    elif any(link["target"] == top["id"] for link in facts.links):
        text = f"Nothing is held up yet, but “{top['name']}”{_who(top)} is at its limit, "
        yield Sentence("note", f"{text}{_percent(share)} busy.", top["id"])
    else:
        text = f"The source “{top['name']}” sets the pace, {_percent(share)} busy: "
        yield Sentence("good", f"{text}nothing behind it is held up.", top["id"])


def bottleneck(known: dict[int, Plain], links: Sequence[Plain]) -> Plain | None:
    """The operator that others wait for and that waits for nobody itself; of several, the busiest."""
    waited_for = {
        link["target"]
        for link in links
        if link["source"] in known and _waits(known[link["source"]]) >= WAITS
    }
    blocking = [o for id, o in known.items() if id in waited_for]
    free = [o for o in blocking if _waits(o) < WAITS]
    return max(free or blocking, key=_busiest, default=None)


def _holds_up(slow: Plain, known: dict[int, Plain], links: Sequence[Plain]) -> Sentence:
    waiting = [
        known[link["source"]]
        for link in links
        if link["target"] == slow["id"] and link["source"] in known
    ]
    most = max(waiting, key=_waits)
    words = f"“{slow['name']}”{_who(slow)} is the bottleneck, {_percent(_busiest(slow))} busy"
    skew = slow["skew"]
    if skew is not None and skew["times_fair"] >= SKEWED:
        same = slow["busiest"] is not None and skew["subtask"] == slow["busiest"]["subtask"]
        who = "it" if same else f"subtask {skew['subtask'] + 1}"
        words += f"; {who} has {_percent(skew['share'])} of the records, its share would be "
        words += _percent(1 / slow["parallelism"])
    words += f". “{most['name']}” waits for it {_percent(_waits(most))} of the time."
    return Sentence("bad", words, slow["id"])


def of_checkpoints(facts: Facts) -> Iterator[Sentence]:
    """What the last checkpoint waited for, and the one that is being taken."""
    checkpoints, at = facts.figures["checkpoints"], facts.figures["at"]
    newest = checkpoints["newest"]
    parts = [(o, o["slowest_part"]) for o in facts.operators if o["slowest_part"] is not None]
    if newest is not None:
        took = newest["duration_s"]
        words = f"Checkpoint {newest['checkpoint_id']} ({newest['mode']}) took {_duration(took)}"
        last = None
        if parts:
            operator, part = max(parts, key=lambda pair: float(pair[1]["stored_s"]))
            last = operator["id"]
            words += f"; it waited longest for “{operator['name']}” subtask {part['subtask'] + 1}"
            words += f" of {operator['parallelism']}, mostly {_longest_phase(part)}"
        yield Sentence("note" if took >= LONG_S else "good", f"{words}.", last)
    for pending in checkpoints["under_way"]:
        if at - pending["triggered_at"] < LONG_S:
            continue
        missing = pending["missing"]
        waits = "its manifest is being stored"
        if missing:
            own = (
                "subtask has not stored its"
                if len(missing) == 1
                else "subtasks have not stored their"
            )
            waits = f"{len(missing)} {own} part yet, first {missing[0]}"
        span = _duration(at - pending["triggered_at"])
        yield Sentence(
            "note", f"Checkpoint {pending['checkpoint_id']} has taken {span} so far: {waits}."
        )
    if newest is None and checkpoints["failed"]:
        reason = in_short(checkpoints["last_failure"] or "no reason given")
        yield Sentence("bad", f"No checkpoint has completed; the last one failed: {reason}.")


def of_restarts(facts: Facts) -> Iterator[Sentence]:
    """How often the job failed, and why at last."""
    figures, restarts = facts.figures, facts.figures["restarts"]
    if restarts and figures["status"] == "running" and facts.live:
        times = "once" if restarts == 1 else f"{restarts} times"
        known = [one["at"] for one in facts.events if one["event"] == "restarting"]
        ago_s = figures["at"] - known[-1] if known else None
        when = "" if ago_s is None else f"{_ago(ago_s)}, "
        again = restarts > 1 and ago_s is not None and ago_s < RECENT_S
        cause = in_short(figures["last_failure"] or "no cause given")
        text = f"The job restarted {times}, last {when}because of: {cause}."
        yield Sentence("bad" if again else "note", text)


RULES: tuple[Rule, ...] = (of_status, of_throughput, of_checkpoints, of_restarts)


def _cause(events: Sequence[Plain]) -> str | None:
    return events[-1].get("cause") if events else None


def _waits(operator: Plain) -> float:
    """Which share of its time an operator has no room for its output."""
    return float(operator["times"]["soft"] + operator["times"]["hard"])


def _busiest(operator: Plain) -> float:
    busiest = operator["busiest"]
    return float(operator["times"]["busy"] if busiest is None else busiest["share"])


def _who(operator: Plain) -> str:
    """Which of its subtasks, if they differ; else that all of them are meant."""
    busiest, subtasks = operator["busiest"], operator["parallelism"]
    if busiest is None or subtasks == 1:
        return ""
    if busiest["share"] >= SKEWED * operator["times"]["busy"]:
        return f" subtask {busiest['subtask'] + 1} of {subtasks}"
    return f" (all {subtasks} subtasks)"


def _longest_phase(part: Plain) -> str:
    phases = {
        "start delay": part["start_delay_s"],
        "alignment": part["alignment_s"],
        "its synchronous part": part["sync_s"],
        "its asynchronous part": part["async_s"],
    }
    name = max(phases, key=lambda phase: float(phases[phase]))
    return f"{name} ({_duration(phases[name])})"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or share == 0 else f"{share:.1%}"


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def in_short(text: str) -> str:
    """The first line of an error; behind a traceback the last one as well, which names the exception."""
    lines = [line.strip()[:_LINE_MAX].rstrip(".") for line in text.strip().splitlines()] or [""]
    traced = any(line.startswith("Traceback") for line in lines[:-1])
    return f"{lines[0]} ({lines[-1]})" if traced else lines[0]
