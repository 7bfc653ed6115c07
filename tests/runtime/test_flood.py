"""One record that becomes very many: its output waits on disk, and no barrier waits for the receivers."""

from __future__ import annotations

import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    Environment,
    Job,
    Limits,
    Options,
    Process,
    ProcessContext,
    Restart,
    SequenceSource,
)
from tests.campaigns import modes
from tests.runtime.processes import send, wait_until, workers
from tests.runtime.test_backpressure import MIB, Figures

pytestmark = pytest.mark.processes

FLOOD, SIZE = 50_000, 400
Record = tuple[int, str]
LIMITS = {"input_queue_bytes": 32 * 1024, "output_queue_bytes": 32 * 1024, "overdraft_bytes": MIB}


class Watcher(Figures):
    """The newest figures, and the checkpoints that have completed."""

    def __init__(self) -> None:
        super().__init__()
        self.completed: list[Mapping[str, Any]] = []

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        if entry["status"] == "completed":
            self.completed.append(entry)

    def total(self, figure: str, operator: str = "SequenceSource") -> float:
        """By default of the subtask that floods the job."""
        return sum(getattr(each, figure) for each in self.of(operator)) if self.progress else 0

    @property
    def captured_bytes(self) -> int:
        """What the largest checkpoint has captured in one subtask."""
        subtasks = [subtask for entry in self.completed for subtask in entry["subtasks"]]
        return max((subtask["in_flight_bytes"] for subtask in subtasks), default=0)


class Gate(Process):
    """Lets one record a millisecond pass, and all of them once it is opened."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign
        self._open = False

    def process(self, record: Record, ctx: ProcessContext) -> Iterator[int]:
        if not self._open:
            self._open = self._sign.exists()
            time.sleep(0.001)
        yield record[0]


def _flood(record: int) -> Iterator[Record]:
    return ((number, f"{number:0{SIZE}}") for number in range(record * FLOOD, (record + 1) * FLOOD))


class Flooded:
    """A job whose every record becomes `FLOOD`, of `SIZE` bytes each, before a gate."""

    def __init__(self, folder: Path) -> None:
        self.watcher = Watcher()
        self.temporary = Path(tempfile.gettempdir())
        self._sink = CollectSink()
        self._storage = folder / "checkpoints"
        self._sign = folder / "open"
        self._expected: list[int] = []
        self._job: Job | None = None

    def start(
        self,
        *,
        records: int = 1,
        mode: str | None = None,
        before: Callable[[int], int] = int,
        flood: Callable[[int], Iterator[Record]] = _flood,
        placement: Any = "subtask",
        **limits: int,
    ) -> None:
        env = Environment()
        numbers = env.source(SequenceSource(records, splits=1), uid="numbers")
        flooded = numbers.map(before, uid="before").flat_map(flood, uid="flood")
        passed = flooded.rebalance().process(Gate(self._sign), uid="gate")
        passed.sink(self._sink, uid="out")
        checkpointing = None
        if mode is not None:
            checkpointing = Checkpointing(self._storage, interval="300ms", mode=mode)
        self._expected = list(range(records * FLOOD))
        self._job = env.start(
            checkpointing=checkpointing,
            restart=Restart.fixed_delay(3, "10ms"),
            options=Options(placement=placement, limits=Limits(**{**LIMITS, **limits})),
            observer=self.watcher,
        )

    def wait_for_spill(self, count: int) -> None:
        wait_until(lambda: self.watcher.total("spilled_bytes") >= count, "spilled output")

    def finish(self, *, restarts: int = 0) -> None:
        """Open the gate. All must have come through, once."""
        assert self._job is not None
        self._sign.touch()
        assert self._job.wait(120).restarts == restarts
        assert sorted(self._sink.rows) == self._expected

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job.wait(20)


def no_room_for_large_files(record: int) -> int:
    """As if the disk were full: what is written last is cut off in the middle of a frame."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB + 12_345, resource.RLIM_INFINITY))
    return record


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flooded]:
    """After it, nothing of it may be left among the temporary files."""
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        flooded = Flooded(tmp_path)
        yield flooded
        flooded.cancel()
        assert list(Path(temporary).iterdir()) == []


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_a_barrier_does_not_wait_for_the_receivers_and_a_restore_brings_back_what_was_on_disk(
    job: Flooded, placement: str
) -> None:
    job.start(mode="unaligned", placement=placement)
    job.wait_for_spill(16 * MIB)
    wait_until(lambda: job.watcher.captured_bytes > 16 * MIB, "a checkpoint of the flood")
    assert job.watcher.total("hard_backpressure_s") == 0
    assert list(job.temporary.rglob("spill-*")) == []
    send(workers()[0], signal.SIGKILL)
    job.finish(restarts=1)


@pytest.mark.parametrize("mode", modes())
def test_a_record_runs_to_its_end_in_every_mode(job: Flooded, mode: str) -> None:
    job.start(records=2, mode=mode)
    job.wait_for_spill(16 * MIB)
    job.finish()
    assert job.watcher.total("hard_backpressure_s") == 0


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_at_the_limit_of_the_spill_the_record_is_held_back_until_there_is_room(
    job: Flooded, placement: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job.start(records=2, mode="unaligned", placement=placement, spill_bytes_max=2 * MIB)
    job.wait_for_spill(MIB)
    job.finish()
    assert job.watcher.total("hard_backpressure_s") > 0
    errors = capfd.readouterr().err
    assert errors.count("has to wait within one record") == 1
    assert f"spill_bytes_max ({2 * MIB}) allows no more" in errors
    assert f"wait in {job.temporary}" in errors


def test_on_a_full_disk_the_record_is_held_back_and_nothing_is_lost(
    job: Flooded, capfd: pytest.CaptureFixture[str]
) -> None:
    job.start(records=2, before=no_room_for_large_files)
    job.wait_for_spill(MIB)
    job.finish()
    assert job.watcher.total("hard_backpressure_s") > 0
    errors = capfd.readouterr().err
    assert errors.count("has to wait within one record") == 1
    assert "the disk takes no more ([Errno 27] File too large" in errors


class SlowFlood:
    """Yields the second half of its results one a millisecond, until a file exists."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def __call__(self, record: int) -> Iterator[Record]:
        hurry = False
        for number in range(FLOOD):
            if number > FLOOD // 2 and not hurry:
                hurry = self._sign.exists()
                time.sleep(0.001)
            yield (number, f"{number:0{SIZE}}")


def test_a_record_that_takes_long_is_sent_and_reported_before_it_ends(
    job: Flooded, tmp_path: Path
) -> None:
    """Otherwise the receivers would idle, and the worker be taken for one that hangs."""
    sign = tmp_path / "end"
    job.start(flood=SlowFlood(sign), overdraft_bytes=0)
    job.wait_for_spill(MIB)
    wait_until(lambda: job.watcher.total("bytes_in", "process: Gate") > 0, "records sent on")
    sign.touch()
    job.finish()
