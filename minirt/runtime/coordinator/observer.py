"""How a job can be watched while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minirt.monitoring.log_lines import LogLine
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reports import CheckpointReport, CheckpointUnderWay
from minirt.protocol.trace import CheckpointTrace


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The newest figures of all subtasks, and the processes they run in."""

    metrics: Mapping[SubtaskId, SubtaskMetrics]
    names: Mapping[SubtaskId, str]
    pids: Mapping[SubtaskId, int]


class JobObserver:
    """Override what you want to hear of. Called from the coordinator's thread: return quickly."""

    def on_status(self, status: JobStatus, generation: int) -> None:
        """The job has entered another stage of its life."""

    def on_checkpoint(self, report: CheckpointReport) -> None:
        """A checkpoint has completed or failed."""

    def on_checkpoints_under_way(self, checkpoints: Sequence[CheckpointUnderWay]) -> None:
        """What there is of the checkpoints that are being taken has changed; the oldest comes first."""

    def on_trace(self, trace: CheckpointTrace) -> None:
        """What a completed checkpoint did, event by event; only with `Options(trace=True)`."""

    def on_restart(self, error: Exception, delay_s: float) -> None:
        """The job will be restarted after this many seconds because of `error`."""

    def on_comeback(self, error: Exception, delay_s: float) -> None:
        """A worker is gone because of `error`, and comes back after this many seconds; all others go on."""

    def on_output_given_up(self, given_up: GivenUpOutput) -> None:
        """A restore has dropped output of a sink instead of committing it, as the user wanted."""

    def on_told_to_end(self, reason: str) -> None:
        """The job ends because it was told to, by a signal or a request; `on_end` follows."""

    def on_end(self, status: JobStatus, error: Exception | None) -> None:
        """The job has ended; `error` says why it failed."""

    def on_logs(self, lines: Sequence[LogLine]) -> None:
        """Workers have logged these messages, in the order of each; of very many in a row, the newest."""

    def on_progress(self, progress: JobProgress) -> None:
        """New figures have come in, several times a second."""
