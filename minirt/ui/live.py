"""A running job, wherever it is."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from minirt.errors import ConfigurationError
from minirt.monitoring.log_lines import LINES_MAX
from minirt.operations.exchange import JobHasEndedError
from minirt.operations.running import RunningJob
from minirt.ui.reading import ACTIONS, Plain, Reading

ANSWER_S_MAX = 5.0
CHECKPOINTS_MAX = 20_000
"""Of how many checkpoints summaries are kept, the newest."""
UNDER_WAY_S_MIN = 1.0
"""How long a checkpoint must be under way until its parts are asked for."""


class LiveJob:
    """Asks for what may have changed since the last reading, and nothing else.

    If the job ends and another one of its name starts, as after `minirt rescale`, it goes on with that.
    """

    def __init__(self, job: RunningJob) -> None:
        self._last: Reading | None = None
        self._attach(job)

    def _attach(self, job: RunningJob) -> None:
        self._job = job
        self._description: Plain | None = None
        self._checkpoints: deque[Plain] = deque(maxlen=CHECKPOINTS_MAX)
        self._known = 0
        self._newest: Plain | None = None
        self._logs: deque[Plain] = deque(maxlen=LINES_MAX)
        self._logged = 0
        self._restarts: list[Plain] = []
        self._counted_restarts = 0

    def read(self) -> Reading:
        try:
            self._last = self._read()
        except JobHasEndedError as error:
            following = self._job.successor()
            if following is None:
                return self._ended(error)
            self._attach(following)
            self._last = self._read()
        return self._last

    def checkpoint(self, checkpoint_id: int, generation: int) -> Plain:
        wanted = {"checkpoint_id": checkpoint_id, "generation": generation}
        return self._ask("checkpoint", **wanted)

    def act(self, action: str, arguments: Plain) -> Plain:
        path = arguments.get("path")
        if isinstance(path, str):
            arguments = {**arguments, "path": self._job.path(path)}
        return self._job.ask({**arguments, "request": action})

    def _ask(self, request: str, **more: Any) -> Plain:
        return self._job.ask({"request": request, **more}, ANSWER_S_MAX)

    def _read(self) -> Reading:
        description = self._description
        if description is None:
            description = self._description = self._ask("description")
        figures = self._ask("figures")
        checkpoints, under_way = figures["checkpoints"], ()
        if self._known < checkpoints["completed"] + checkpoints["failed"]:
            self._learn_checkpoints()
        newest = checkpoints["newest"]
        if newest is not None and newest["checkpoint_id"] != _id_of(self._newest):
            self._newest = self._part_of(self._checkpoints, newest["checkpoint_id"])
        if figures["restarts"] != self._counted_restarts:
            self._restarts = [
                {"event": "restarting", **one} for one in self._ask("restarts")["restarts"]
            ]
            self._counted_restarts = figures["restarts"]
        if "logs" in description["requests"]:
            told = self._ask("logs", known=self._logged)
            self._logs += told["lines"]
            self._logged = told["total"]
        long_ago = figures["at"] - UNDER_WAY_S_MIN
        if any(one["triggered_at"] <= long_ago for one in checkpoints["under_way"]):
            under_way = tuple(self._ask("under way")["checkpoints"])
        return Reading(
            figures,
            description,
            tuple(self._checkpoints),
            self._newest,
            under_way,
            tuple(self._restarts),
            tuple(self._logs),
            uses=tuple(a for a in ACTIONS if a in description["requests"]),
        )

    def _learn_checkpoints(self) -> None:
        while True:
            told = self._ask("checkpoints", known=self._known)
            self._checkpoints += told["checkpoints"]
            self._known = told["next"]
            if not told["checkpoints"] or self._known >= told["total"]:
                return

    def _part_of(self, known: deque[Plain], checkpoint_id: int) -> Plain | None:
        for one in reversed(known):
            if one["checkpoint_id"] == checkpoint_id:
                try:
                    return self.checkpoint(checkpoint_id, one["generation"])
                except ConfigurationError:  # It was forgotten meanwhile.
                    return None
        return None

    def _ended(self, error: JobHasEndedError) -> Reading:
        """What was known last, said to be over."""
        if self._last is None:
            raise ConfigurationError(str(error))
        storage = self._last.description["storage"]
        where = "" if storage is None else f"; what storage remembers: minirt ui {storage}"
        return replace(
            self._last,
            figures={**self._last.figures, "status": "ended"},
            under_way=(),
            live=False,
            note=f"The job has ended. These were its last figures{where}",
            uses=(),
        )


def _id_of(checkpoint: Plain | None) -> int | None:
    return None if checkpoint is None else checkpoint["checkpoint_id"]
