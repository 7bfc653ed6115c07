"""A job script as users start it, to be killed from outside: `python -m tests.runtime.script FOLDER`.

It goes on from its last checkpoint, if there is one, and can kill itself within a commit.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from minirt import (
    Checkpointing,
    Environment,
    JsonlSink,
    KeyedContext,
    KeyedProcess,
    Options,
    Restart,
)
from minirt.io import Handle
from tests.runtime.jobs import CASES, build, numbers_of


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


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", default="keyed")
    parser.add_argument("--mode", default="aligned")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--per-second", type=float, default=2000)
    parser.add_argument("--placement", choices=["subtask", "slots"], default="subtask")
    parser.add_argument("--fatal-commit", type=int, default=0)
    given = parser.parse_args(arguments)
    FatalSink.fatal_commit = given.fatal_commit
    env = Environment(given.case, parallelism=given.parallelism)
    if given.case == "sleeper":
        numbers = numbers_of(env, None, "numbers", per_second=100)
        outputs = {"nothing": numbers.key_by(lambda n: n).process(Sleeper(), uid="sleeper")}
    else:
        outputs = build(CASES[given.case], env, given.count, per_second=given.per_second)
    for name, stream in outputs.items():
        stream.sink(FatalSink(given.folder / name), uid=f"out-{name}")
    env.execute(
        checkpointing=Checkpointing(
            str(given.folder / "checkpoints"), interval="50ms", mode=given.mode
        ),
        restore="latest",
        restart=Restart.fixed_delay(attempts=None, delay="10ms"),
        options=Options(placement=given.placement),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
