"""What the live page asks a job for beside its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from minirt.errors import ConfigurationError
from minirt.operations.exchange import Plain
from minirt.protocol import plain
from minirt.protocol.reports import CheckpointReport

if TYPE_CHECKING:
    from minirt.runtime.program.job import Job

SUMMARIES_MAX = 500
"""How many checkpoints one answer tells of; who wants more asks again."""

OF_SUMMARY = (
    *("checkpoint_id", "generation", "mode", "kind"),
    *("triggered_at", "duration_s", "bytes", "in_flight_bytes"),
)


def details(
    job: Job, requests: Callable[[], list[str]]
) -> dict[str, Callable[[Mapping[str, Any]], Plain]]:
    """The answers of a job, by request.

    description   its graph and its configuration, which stay the same, and its `requests`
    restarts      the newest, with their errors
    logs          the newest messages, from the number `known` on
    checkpoints   summaries of those that are over, from the number `known` on
    checkpoint    all of one, by `checkpoint_id` and `generation`
    under way     the one that is being taken, with the parts that have come
    """
    return {
        "description": lambda request: {**job.description, "requests": requests()},
        "restarts": lambda request: {"restarts": [asdict(one) for one in job.restart_records]},
        "logs": lambda request: _logs(job, _number(request, "known")),
        "checkpoints": lambda request: _summaries(job, _number(request, "known")),
        "checkpoint": lambda request: _report(job, request),
        "under way": lambda request: _under_way(job),
    }


def summary(report: CheckpointReport) -> Plain:
    """What a list of checkpoints shows of one."""
    return {
        **{name: getattr(report, name) for name in OF_SUMMARY},
        "status": report.status.value,
        "reason": None if report.failure is None else str(report.failure),
        "unaligned": any(part.unaligned for part in report.subtasks),
        "stored": report.stored,
    }


def with_parts(report: CheckpointReport) -> Plain:
    """A summary, and how it went in each subtask."""
    missing = () if report.failure is None else report.failure.missing
    return {
        **summary(report),
        "subtasks": [_part(part) for part in report.subtasks],
        "missing": list(missing),
    }


def _summaries(job: Job, known: int) -> Plain:
    """`total` counts all that were ever over; the oldest of them may be forgotten by now."""
    total, reports = job.checkpoint_reports
    first = max(known, total - len(reports))
    wanted = reports[first - total :] if first < total else ()
    wanted = wanted[:SUMMARIES_MAX]
    return {
        "total": total,
        "next": first + len(wanted),
        "checkpoints": [summary(report) for report in wanted],
    }


def _logs(job: Job, known: int) -> Plain:
    """`total` counts all that were ever logged; the oldest of them may be forgotten by now."""
    total, lines = job.logs_since(known)
    return {"total": total, "lines": [asdict(line) for line in lines]}


def _report(job: Job, request: Mapping[str, Any]) -> Plain:
    id, generation = _number(request, "checkpoint_id"), _number(request, "generation")
    _, reports = job.checkpoint_reports
    for report in reversed(reports):
        if (report.checkpoint_id, report.generation) == (id, generation):
            return with_parts(report)
    raise ConfigurationError(f"job {job.name!r} remembers no checkpoint {id}")


def _under_way(job: Job) -> Plain:
    told = ("checkpoint_id", "mode", "kind", "triggered_at")
    return {
        "checkpoints": [
            {name: getattr(one, name) for name in told}
            | {"missing": list(one.missing), "subtasks": [_part(part) for part in one.parts]}
            for one in job.checkpoints_under_way
        ]
    }


def _part(part: object) -> Plain:
    """Without its channels, which may be very many."""
    told: Plain = plain.to_plain(part)
    told.pop("channels", None)
    return told


def _number(request: Mapping[str, Any], name: str) -> int:
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"{name} is a number, not {value!r}")
    return value
