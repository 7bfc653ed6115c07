"""A job script as users start it, to be killed from outside: `python -m tests.runtime.script FOLDER`.

It goes on from its last checkpoint, if there is one, and can kill itself within a commit. What it has met
it adds to `said.jsonl` in the folder, line by line, so that a kill takes nothing of that away.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minirt import (
    Checkpointing,
    Environment,
    Job,
    JobObserver,
    JsonlSink,
    KeyedContext,
    KeyedProcess,
    Options,
    Restart,
    SavepointFailedError,
)
from minirt.io import Handle
from minirt.protocol.reports import CheckpointUnderWay
from tests.runtime.jobs import CASES, build, numbers_of
from tests.runtime.kill_settings import SETTINGS

SAID = "said.jsonl"
ALLOWANCE = "allowance"
_ASKING, _SAVEPOINTS = 2, 3
"""So many ask for savepoints at once, each for so many."""
_HEARTBEAT_TIMEOUT = "5min"
"""A machine that has other things to do keeps workers silent for long."""


class FatalSink(JsonlSink):
    """Kills its coordinator in the commit that makes `fatal_commit` of them, halfway through."""

    fatal_commit = 0
    _commits = 0

    def commit(self, handles: Sequence[Handle]) -> None:
        FatalSink._commits += 1
        if FatalSink._commits == FatalSink.fatal_commit:
            super().commit(handles[: len(handles) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(handles)


class Sleeper(KeyedProcess):
    """Never returns from its first record."""

    def process(self, record: int, ctx: KeyedContext) -> None:
        time.sleep(3600)


class Telling(JobObserver):
    """Adds what happens to a file."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / SAID).open("a", buffering=1)
        self._at_once = 1

    def say(self, **what: object) -> None:
        self._file.write(f"{json.dumps(what)}\n")

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self.say(restarts=1)

    def on_comeback(self, error: Exception, delay_s: float) -> None:
        self.say(comebacks=1)

    def on_checkpoints_under_way(self, checkpoints: Sequence[CheckpointUnderWay]) -> None:
        if len(checkpoints) > self._at_once:
            self._at_once = len(checkpoints)
            self.say(at_once=self._at_once)


def ask_for_savepoints(job: Job, folder: Path, telling: Telling) -> None:
    """Until the job ends, or there are enough."""
    for _ in range(_SAVEPOINTS):
        path = folder / "savepoints" / uuid.uuid4().hex
        try:
            savepoint = job.savepoint(path)
        except SavepointFailedError:  # The job restarts or ends.
            time.sleep(0.2)
        else:
            telling.say(savepoint=path.name, checkpoint=savepoint.checkpoint_id)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", default="keyed")
    parser.add_argument("--setting", default="aligned", choices=sorted(SETTINGS))
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--per-second", type=float, default=2000)
    parser.add_argument("--placement", choices=["subtask", "slots"], default="subtask")
    parser.add_argument("--transport", choices=["unix", "tcp"], default="unix")
    parser.add_argument("--allowance", action="store_true", help="read no more than a file allows")
    parser.add_argument("--fatal-commit", type=int, default=0)
    given = parser.parse_args(arguments)
    FatalSink.fatal_commit = given.fatal_commit
    setting = SETTINGS[given.setting]
    env = Environment(given.case, parallelism=given.parallelism)
    if given.case == "sleeper":
        numbers = numbers_of(env, None, "numbers", per_second=100)
        outputs = {"nothing": numbers.key_by(lambda n: n).process(Sleeper(), uid="sleeper")}
    else:
        allowance = given.folder / ALLOWANCE if given.allowance else None
        case, per_second = CASES[given.case], given.per_second
        outputs = build(case, env, given.count, per_second=per_second, allowance=allowance)
    for name, stream in outputs.items():
        stream.sink(FatalSink(given.folder / name), uid=f"out-{name}")
    telling = Telling(given.folder)
    settings: dict[str, Any] = {
        "checkpointing": Checkpointing(
            *(given.folder / "checkpoints", setting.interval, setting.mode),
            max_concurrent=setting.max_concurrent,
        ),
        "restore": "latest",
        "restart": Restart.fixed_delay(attempts=None, delay="10ms", scope=setting.scope),
        "options": Options(
            placement=given.placement,
            transport=given.transport,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT,
        ),
        "observer": telling,
    }
    if not setting.savepoints:
        env.execute(**settings)
        return
    job = env.start(**settings)
    for _ in range(_ASKING):
        asking = (job, given.folder, telling)
        threading.Thread(target=ask_for_savepoints, args=asking, daemon=True).start()
    job.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
