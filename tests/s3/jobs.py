"""Jobs that read from S3, write to S3 and keep their checkpoints there."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minirt as rt
from tests.s3.endpoint import Endpoint

COUNT = 300
FILES = 4
PAUSE_S = 0.005
"""What each record takes: the job lasts long enough to be disturbed."""

IMPATIENT = {"config_kwargs": {"retries": {"total_max_attempts": 1}, "read_timeout": 5}}
"""Storage options with which a request is tried few times."""


@dataclass(frozen=True)
class Slowly:
    """Passes records on, and fails once when there is the file, which it removes."""

    crash: Path | None

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        time.sleep(PAUSE_S)
        if self.crash is not None and self.crash.exists():
            self.crash.unlink()
            raise RuntimeError("planned")
        return record


def write_input(endpoint: Endpoint, prefix: str) -> None:
    files = endpoint.filesystem()
    for number in range(FILES):
        rows = [{"id": id, "key": id % 7} for id in range(number, COUNT, FILES)]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        files.pipe_file(f"{prefix}/in/{number}.jsonl", text.encode())


def environment(
    prefix: str,
    options: Mapping[str, Any] | None = None,
    crash: Path | None = None,
    parallelism: int = 1,
    **checkpointing: Any,
) -> rt.Environment:
    """The job: what is in `prefix`/in goes to `prefix`/out, with a count of its key so far."""
    settings = {
        "interval": "50ms",
        "min_pause": "400ms",
        "mode": "unaligned",
        "storage_options": dict(options or {}),
        **checkpointing,
    }
    env = rt.Environment(
        "on-s3",
        parallelism=parallelism,
        checkpointing=rt.Checkpointing(f"{prefix}/checkpoints", **settings),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(limits=rt.Limits(inline_snapshot_bytes=0)),
    )
    records = env.source(
        rt.JsonlSource(f"{prefix}/in", storage_options=options), uid="in", name="in"
    )
    slow = records.rebalance().map(Slowly(crash), name="slow")
    counted = slow.key_by("key").process(Count(), uid="count", name="count")
    counted.sink(rt.JsonlSink(f"{prefix}/out", storage_options=options), uid="out", name="out")
    return env


class Count(rt.KeyedProcess):
    """Adds to each record how many of its key there were."""

    seen = rt.ValueState(default=0)

    def process(self, record: dict[str, Any], ctx: rt.KeyedContext) -> Any:
        self.seen.value += 1
        yield {**record, "count": self.seen.value}


def check_output(endpoint: Endpoint, prefix: str) -> None:
    """Every record is there once, and every key was counted through once."""
    files = endpoint.filesystem()
    rows = [
        json.loads(line)
        for path in files.find(f"{prefix}/out")
        if "/_minirt/" not in path
        for line in files.cat_file(path).splitlines()
    ]
    assert sorted(row["id"] for row in rows) == list(range(COUNT))
    counts = sorted((row["key"], row["count"]) for row in rows)
    of_each = Counter(id % 7 for id in range(COUNT))
    assert counts == [(key, n + 1) for key in sorted(of_each) for n in range(of_each[key])]
