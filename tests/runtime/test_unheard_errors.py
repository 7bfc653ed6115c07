"""Whatever goes wrong in a thread, a storage command, an upload or a `close`: the job hears of it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

import minirt as rt
from minirt.clock import SYSTEM_CLOCK
from minirt.graph.planner import build_execution_graph
from minirt.io.base import Prepared
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    CleanUp,
    CommitFailed,
    CommitHandles,
    GenerationFailed,
    JobEvent,
    ManifestRefused,
    PrepareGeneration,
    PublishSavepoint,
    RecordHistory,
    SavepointNotPublished,
    SnapshotAcknowledged,
    SnapshotDeclined,
    StoreManifest,
    WorkerFailed,
)
from minirt.protocol.manifest import Manifest, SinkHandles
from minirt.protocol.reports import completed_report
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.runtime.coordinator.coordinator import StorageThread
from minirt.runtime.coordinator.storage_tasks import RecordEvent, StorageTasks
from minirt.runtime.subtask.snapshot import SnapshotUpload, store_snapshots
from minirt.runtime.worker.upload_queue import UploadQueue
from minirt.runtime.worker.uploader import Uploader
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.history import History
from minirt.storage.store import ObjectStore
from minirt.threads import start_thread

SURROGATE = "broken \udc80 text"
MANIFEST = Manifest(1, "job", 3, 1, "aligned", "checkpoint", 0.0, 1.0, (), (), (), ())
COMMANDS = [
    PrepareGeneration(),
    StoreManifest(MANIFEST),
    CommitHandles(3, (SinkHandles("out", 3, 0, ({"a": 1},)),)),
    PublishSavepoint(MANIFEST, "/somewhere"),
    CleanUp(),
    RecordHistory(completed_report(MANIFEST)),
    RecordEvent({"a": 1}),
]
ANSWERS: dict[type, type] = {
    PrepareGeneration: GenerationFailed,
    StoreManifest: ManifestRefused,
    CommitHandles: CommitFailed,
    PublishSavepoint: SavepointNotPublished,
}
UNEXPECTED = [
    TypeError("nobody expects this"),
    UnicodeEncodeError("utf-8", SURROGATE, 7, 8, "surrogates not allowed"),
    RecursionError("too deep"),
    SystemExit("a sink that exits"),
]


class BrokenSink(rt.CollectSink):
    """Commits raise whatever they are told to."""

    error: BaseException

    def commit(self, handles: Any) -> None:
        raise self.error


class BrokenStorage(CheckpointStorage):
    """Nothing works; what is raised is no StorageError."""

    error: BaseException

    def claim_generation(self) -> int:
        raise self.error

    def create_manifest(self, manifest: Manifest) -> bool:
        raise self.error

    def is_current(self, generation: int) -> bool:
        raise self.error

    def cleanup(self, *args: Any) -> None:
        raise self.error

    def append_history(self, entry: Any) -> None:
        raise self.error


def broken_tasks(
    folder: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> StorageTasks:
    sink = BrokenSink()
    sink.error = error
    env = rt.Environment()
    env.source(rt.SequenceSource(3), uid="numbers").sink(sink, uid="out")
    storage = BrokenStorage(ObjectStore(folder), 0)
    storage.error = error

    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(History, "append", fail)
    graph = build_execution_graph(env.graph())
    return StorageTasks(graph, storage, rt.Checkpointing(folder), RestoreOptions())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
def test_an_error_in_a_storage_command_is_an_event(command, error, tmp_path, monkeypatch, caplog):
    answer = broken_tasks(str(tmp_path), error, monkeypatch).run(command)
    wanted = ANSWERS.get(type(command))
    if wanted is None:
        assert answer is None
        assert any(record.levelno >= logging.WARNING for record in caplog.records)
    else:
        assert isinstance(answer, wanted)


def test_a_storage_thread_that_ends_fails_the_job():
    class Dying:
        def run(self, command: Any) -> None:
            raise KeyboardInterrupt

    posted: list[Any] = []
    thread = StorageThread(Dying(), posted.append)  # type: ignore[arg-type]
    thread.put(PrepareGeneration())
    thread.close(10)
    [event] = posted
    assert isinstance(event, GenerationFailed)
    assert event.fatal
    assert "storage thread" in str(event.error)


def test_whatever_ends_a_thread_is_told():
    told: list[BaseException] = []
    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt()):

        def body(error: BaseException = error) -> None:
            raise error

        start_thread("dying", body, told.append).join(10)
    start_thread("living", lambda: None, told.append).join(10)
    assert [type(error) for error in told] == [ValueError, SystemExit, KeyboardInterrupt]


# Text that no encoding has.


def test_history_of_text_with_lone_surrogates_is_written_and_readable(tmp_path):
    history = History(ObjectStore(str(tmp_path)), CheckpointPaths.EVENTS, 1, 10)
    history.append({"cause": SURROGATE, "names": [SURROGATE]})
    assert history.read() == [{"cause": "broken \\udc80 text", "names": ["broken \\udc80 text"]}]


def test_handles_with_lone_surrogates_come_back_as_they_were(tmp_path):
    storage = CheckpointStorage(ObjectStore(str(tmp_path)), 0)
    generation = storage.claim_generation()
    handles = (SinkHandles("out", 1, 0, ({"path": SURROGATE},)),)
    manifest = Manifest(
        1, "job", 1, generation, "aligned", "checkpoint", 0.0, 1.0, (), (), handles, ()
    )
    assert storage.create_manifest(manifest)
    assert storage.read_manifest(manifest.key).sink_handles == handles


class RaisesSurrogates(rt.Process):
    def process(self, record: Any, ctx: Any) -> Any:
        raise ValueError(SURROGATE)


@pytest.mark.processes
def test_a_job_that_fails_with_lone_surrogates_ends(tmp_path):
    env = rt.Environment("surrogates")
    source = env.source(rt.SequenceSource(3), uid="numbers")
    source.process(RaisesSurrogates(), uid="raises").sink(rt.CollectSink(), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path, interval="50ms"),
        restart=rt.Restart.fixed_delay(2, "10ms"),
    )
    with pytest.raises(rt.JobFailedError, match="broken"):
        job.wait(60)


# Handles and records of the user's classes.

SCRIPT = """
import threading
from dataclasses import dataclass

import minirt as rt


@dataclass
class Thing:
    n: int


class Locked:
    def __init__(self):
        self.lock = threading.Lock()


class OddSink(rt.CollectSink):
    def __reduce__(self):
        return (OddSink, (HANDLE,))

    def __init__(self, of=None):
        super().__init__()
        self.of = of

    def open_writer(self, context):
        return OddWriter(self.of)

    def commit(self, handles):
        self.rows.extend(handles)


class OddWriter(rt.SinkWriter):
    def __init__(self, of):
        self.of = of

    def write(self, batch):
        pass

    def prepare(self, checkpoint_id):
        return rt.Prepared([self.of()])


def thing():
    return Thing(3)


HANDLE = None
"""


def run_script(text: str, folder: Any) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT + text)
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, cwd=folder
    )


@pytest.mark.processes
def test_records_of_a_class_of_the_script_can_be_collected(tmp_path):
    ran = run_script(
        """
env, sink = rt.Environment("things"), rt.CollectSink()
env.source(rt.SequenceSource(5), uid="numbers").map(Thing, uid="things").sink(sink, uid="out")
env.execute()
assert sink.rows == [Thing(n) for n in range(5)], sink.rows
print("all", all(type(row) is Thing for row in sink.rows))
""",
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "all True\n"), ran.stderr


@pytest.mark.processes
def test_handles_of_a_class_of_the_script_can_be_committed(tmp_path):
    ran = run_script(
        """
HANDLE = thing
env, sink = rt.Environment("things"), OddSink()
env.source(rt.SequenceSource(5), uid="numbers").sink(sink, uid="out")
env.execute()
print(sink.rows)
""",
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "[Thing(n=3)]\n"), ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("handle", "checkpointing", "message"),
    [
        ("Locked", "None", "plain data.*cannot be sent to another process"),
        ("thing", 'rt.Checkpointing("checkpoints")', "handles of sink 'out' cannot be stored"),
    ],
    ids=["nothing can carry it", "nothing can store it"],
)
def test_handles_that_cannot_travel_fail_the_job_at_once(tmp_path, handle, checkpointing, message):
    ran = run_script(
        f"""
HANDLE = {handle}
env, sink = rt.Environment("things"), OddSink()
env.source(rt.SequenceSource(5), uid="numbers").sink(sink, uid="out")
try:
    env.execute(checkpointing={checkpointing})
except rt.MinirtError as error:
    print(" ".join(str(error).split()))
""",
        tmp_path,
    )
    assert re.search(message, ran.stdout), ran.stdout + ran.stderr


# Uploads.


def upload_of(checkpoint_id: int, handles: list[Any]) -> SnapshotUpload:
    return SnapshotUpload(
        generation=1,
        checkpoint_id=checkpoint_id,
        subtask=SubtaskId(0, 0),
        name="out (1/1)",
        sections={"state": b"much"},
        watermarks=SubtaskWatermarks("out", 0, None, ()),
        offsets=None,
        prepared=[("out", checkpoint_id, Prepared(handles))],
        taken_at=0.0,
    )


class Written:
    """A SnapshotWriter that only counts."""

    def __init__(self) -> None:
        self.checkpoints: list[int] = []

    def write_snapshot(self, checkpoint_id: int, *rest: Any) -> None:
        self.checkpoints.append(checkpoint_id)


def test_of_a_checkpoint_that_was_given_up_only_the_output_is_kept():
    queue, writer = UploadQueue(10), Written()
    for checkpoint_id in (1, 2, 3):
        queue.put(upload_of(checkpoint_id, [{"file": checkpoint_id}]))
    queue.give_up(2)
    results = []
    while len(queue):
        [(context, upload)] = queue.take()
        assert bool(upload.sections) == (upload.checkpoint_id == 3)
        taken = [(context, upload)]
        results += store_snapshots(taken, writer, lambda: 0.0, queue.is_given_up)  # type: ignore[arg-type]
    assert writer.checkpoints == [3]
    assert [type(one) for one in results] == [
        SnapshotDeclined,
        SnapshotDeclined,
        SnapshotAcknowledged,
    ]
    assert [one.handles[0].handles[0]["file"] for one in results] == [1, 2, 3]


def test_an_older_checkpoint_that_is_spared_is_stored():
    queue = UploadQueue(10)
    for checkpoint_id in (1, 2, 3):
        queue.put(upload_of(checkpoint_id, []))
    queue.give_up(2, spared=[1])
    kept = [upload.checkpoint_id for _ in range(3) for _, upload in queue.take() if upload.sections]
    assert kept == [1, 3]


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
def test_an_upload_that_fails_is_told_and_the_next_one_is_stored(error):
    """Not that the thread ended: whoever hears of that knows neither the subtask nor the next snapshot."""

    def fail() -> None:
        raise error

    told: Queue[JobEvent] = Queue()
    ends: list[BaseException] = []
    package: Any = SimpleNamespace(storage=None, clock=SYSTEM_CLOCK)
    uploader = Uploader(package, 10, lambda result: None, lambda: None, told.put, ends.append)
    failing = replace(upload_of(1, []), prepared=[("out", 1, Prepared([], fail))])
    uploader.put(failing)
    uploader.put(upload_of(2, [{"file": 2}]))
    first, second = told.get(timeout=10), told.get(timeout=10)
    assert isinstance(first, WorkerFailed)
    assert str(error) in str(first.error)
    assert isinstance(second, SnapshotAcknowledged)
    assert (second.checkpoint_id, ends) == (2, [])


def test_no_more_snapshots_wait_than_are_allowed():
    queue = UploadQueue(2)
    queue.put(upload_of(1, []))
    queue.put(upload_of(2, []))
    with pytest.raises(rt.StorageError, match=r"2 snapshots wait.*storage does not keep up"):
        queue.put(upload_of(3, []))


# close().


class ClosesBadly(rt.Process):
    def process(self, record: Any, ctx: Any) -> Any:
        yield record

    def close(self) -> None:
        raise ValueError("cannot close")


class ClosesWell(rt.Process):
    def __init__(self, file: str) -> None:
        self.file = file

    def process(self, record: Any, ctx: Any) -> Any:
        yield record

    def close(self) -> None:
        with open(self.file, "w") as file:
            file.write(str(os.getpid()))


@pytest.mark.processes
@pytest.mark.parametrize("runner", ["processes", "inline"])
def test_an_error_of_close_is_logged_and_the_others_are_closed(tmp_path, runner, capfd, caplog):
    env, sink = rt.Environment("closing"), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(3), uid="numbers").process(ClosesBadly(), uid="bad")
    numbers.process(ClosesWell(str(tmp_path / "closed")), uid="well").sink(sink, uid="out")
    result = env.execute(runner=runner)
    assert (result.status.value, len(sink.rows)) == ("finished", 3)
    assert (tmp_path / "closed").exists()
    logged = capfd.readouterr().err + caplog.text
    assert "ClosesBadly (uid bad) could not be closed" in logged
    assert "ValueError: cannot close" in logged


# Threads of the job's modules.


class StartsThread:
    """Starts a thread when it is loaded, as some modules do when they are imported."""

    def __reduce__(self) -> Any:
        return (_started, ())

    def __call__(self, record: Any) -> Any:
        return record


def _started() -> StartsThread:
    threading.Thread(target=threading.Event().wait, name="telemetry", daemon=True).start()
    return StartsThread()


@pytest.mark.processes
def test_a_job_that_starts_threads_while_it_is_loaded_runs_all_the_same(caplog):
    env, sink = rt.Environment("threads", parallelism=2), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(100, splits=2), uid="numbers").map(
        StartsThread(), uid="m"
    )
    numbers.key_by(lambda n: n % 5).reduce(max, uid="max").sink(sink, uid="out")
    assert env.execute().restarts == 0
    assert len(sink.rows) == 100
    assert "telemetry" in caplog.text
