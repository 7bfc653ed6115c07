"""Storage that refuses, breaks or forgets: one clear error before a job starts, no half-written objects."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.filesystems import delete_together, open_filesystem
from minirt.io import SinkContext, SinkIdentity
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectMissingError, ObjectStore
from tests.s3.endpoint import Endpoint
from tests.s3.jobs import IMPATIENT
from tests.s3.proxy import SLOW_S, Fault, FaultyProxy, Request
from tests.storage.scenario import complete, started

NOWHERE = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s", **IMPATIENT}


@pytest.fixture
def store(endpoint: Endpoint, prefix: str, proxy: FaultyProxy) -> ObjectStore:
    """A storage behind the proxy, tried few times."""
    return ObjectStore(prefix, {**endpoint.at(proxy.url).options, **IMPATIENT})


@pytest.mark.parametrize(
    "fault", [Fault.UNAVAILABLE, Fault.INTERNAL_ERROR, Fault.RESET, Fault.TORN]
)
def test_a_write_that_breaks_leaves_the_old_object_as_it_was(
    fault: Fault, store: ObjectStore, proxy: FaultyProxy
) -> None:
    store.write("a", b"old" * 1000)
    proxy.plan = lambda request: fault if request.method == "PUT" else None
    with pytest.raises(rt.StorageError, match="cannot write"):
        store.write("a", b"new" * 1000)
    with pytest.raises(rt.StorageError, match="cannot create"):
        store.create("b", b"new" * 1000)
    proxy.plan = lambda request: None
    assert store.read("a") == b"old" * 1000
    assert store.list() == ["a"]


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESET, Fault.TORN])
def test_a_read_that_breaks_is_an_error_and_not_half_an_object(
    fault: Fault, store: ObjectStore, proxy: FaultyProxy
) -> None:
    store.write("a", b"x" * 100_000)
    proxy.plan = lambda request: fault if request.method == "GET" else None
    with pytest.raises(rt.StorageError, match="cannot read") as caught:
        store.read("a")
    assert not isinstance(caught.value, ObjectMissingError)


@pytest.mark.parametrize("fault", [None, Fault.FORBIDDEN])
def test_objects_are_deleted_by_one_request_or_one_each_where_that_is_refused(
    fault: Fault | None, store: ObjectStore, proxy: FaultyProxy
) -> None:
    paths = [f"chk/{number} + 1" for number in range(20)]
    for path in ["kept", *paths]:
        store.write(path, b"x")
    asked: list[str] = []

    def plan(request: Request) -> Fault | None:
        asked.append(request.method)
        return fault if request.method == "POST" else None

    proxy.plan = plan
    store.delete_all([*paths, "absent"])
    assert asked[0] == "POST"
    assert asked[1:] == ["DELETE"] * (21 if fault else 0)
    assert store.list() == ["kept"]


class PlayedFiles:
    """Deletes by the request of S3, but for some keys."""

    protocol = ("s3",)

    def __init__(self, *kept: str) -> None:
        self._kept = kept
        self.requests: list[int] = []

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def call_s3(self, method: str, **given: Any) -> dict[str, Any]:
        keys = [named["Key"] for named in given["Delete"]["Objects"]]
        self.requests.append(len(keys))
        return {"Errors": [{"Key": key} for key in keys if key in self._kept]}


def test_a_request_deletes_a_thousand_objects_and_tells_which_it_has_not() -> None:
    files = PlayedFiles("f/3", "f/2000")
    left = delete_together(files, [f"b/f/{number}" for number in range(2001)], 10)
    assert files.requests == [1000, 1000, 1]
    assert left == ["b/f/3", "b/f/2000"]


def test_an_object_that_has_gone_missing_is_named_and_the_checkpoint_before_it_can_be_read(
    store: ObjectStore, proxy: FaultyProxy
) -> None:
    storage = CheckpointStorage(store, inline_bytes_max=0)
    generation = started(storage)
    older, newer = (complete(storage, number, generation) for number in (7, 8))
    proxy.plan = lambda request: (
        Fault.MISSING if "chk-00000008" in request.key and request.key.endswith(".part") else None
    )
    with pytest.raises(rt.CorruptCheckpointError, match="missing") as caught:
        storage.read_snapshot(newer.snapshots[0], newer.key)
    assert caught.value.path == store.full_path(str(newer.snapshots[0].path))
    assert storage.read_snapshot(older.snapshots[0], older.key)


def test_a_create_whose_answer_is_lost_is_seen_to_exist(
    store: ObjectStore, proxy: FaultyProxy
) -> None:
    proxy.plan = lambda request: Fault.LOST_ANSWER if request.method == "PUT" else None
    assert not store.create("a", b"mine")
    assert store.read("a") == b"mine"


def test_a_request_that_takes_too_long_fails(
    endpoint: Endpoint, prefix: str, proxy: FaultyProxy
) -> None:
    store = ObjectStore(prefix, endpoint.at(proxy.url).options, timeout_s=SLOW_S / 3)
    proxy.plan = lambda request: Fault.SLOW
    with pytest.raises(rt.StorageError, match="it took too long"):
        store.write("a", b"1")


def without_bucket(endpoint: Endpoint, proxy: FaultyProxy) -> tuple[str, dict[str, Any]]:
    return "s3://minirt-no-such-bucket/job", endpoint.options


def with_a_wrong_key(endpoint: Endpoint, proxy: FaultyProxy) -> tuple[str, dict[str, Any]]:
    proxy.plan = lambda request: Fault.FORBIDDEN
    options = {**endpoint.at(proxy.url).options, "secret": "wrong"}
    return f"s3://{endpoint.bucket}/job", options


def without_server(endpoint: Endpoint, proxy: FaultyProxy) -> tuple[str, dict[str, Any]]:
    return "s3://minirt/job", NOWHERE


def with_an_unknown_option(endpoint: Endpoint, proxy: FaultyProxy) -> tuple[str, dict[str, Any]]:
    return "s3://minirt/job", {**endpoint.options, "endpiont": "x"}


Trouble = Callable[[Endpoint, FaultyProxy], tuple[str, dict[str, Any]]]


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        (without_bucket, "create the bucket, or correct the URL"),
        (with_a_wrong_key, "check key and secret"),
        (without_server, "check endpoint_url"),
        (with_an_unknown_option, "check the names of the storage options"),
    ],
)
def test_storage_that_cannot_be_used_is_refused_before_anything_starts(
    trouble: Trouble, advice: str, endpoint: Endpoint, proxy: FaultyProxy
) -> None:
    url, options = trouble(endpoint, proxy)
    env = rt.Environment("refused", checkpointing=rt.Checkpointing(url, storage_options=options))
    env.source(rt.CollectionSource([1]), uid="in").sink(rt.CollectSink(), uid="out")
    with pytest.raises(rt.StorageError, match=advice) as caught:
        env.execute(runner="inline")
    assert caught.value.path.startswith(url)

    env = rt.Environment("refused")
    sink = rt.JsonlSink(url, storage_options=options)
    env.source(rt.CollectionSource([{"a": 1}]), uid="in").sink(sink, uid="out")
    with pytest.raises(rt.StorageError, match=advice) as caught:
        env.graph()
    assert caught.value.path.startswith(url)

    # S3 says of such a bucket that it holds nothing.
    advice = f"no input at {url}" if trouble is without_bucket else advice
    with pytest.raises(rt.MinirtError, match=advice) as refused:
        rt.JsonlSource(url, storage_options=options).validate()
    assert url in str(refused.value)


def command_line(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minirt", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_command_line_says_it_in_a_line(endpoint: Endpoint, tmp_path: Path) -> None:
    url = "s3://minirt-no-such-bucket/job"
    (tmp_path / "job.py").write_text(
        "import minirt as rt\n"
        'env = rt.Environment("job")\n'
        'env.source(rt.CollectionSource([1]), uid="in").sink(rt.CollectSink(), uid="out")\n'
    )
    given = [f"checkpointing.storage_options.{name}={v}" for name, v in endpoint.options.items()]
    settings = [word for each in given for word in ("--set", each)]
    ended = command_line(tmp_path, "run", "job.py", "--storage", url, *settings)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert url in line
    assert "create the bucket, or correct the URL" in line
    assert endpoint.secret not in ended.stdout + ended.stderr


def test_checkpoints_are_inspected_with_storage_options(
    endpoint: Endpoint, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = CheckpointStorage(ObjectStore(prefix), inline_bytes_max=0)
    complete(storage, 7, started(storage))
    for name in endpoint.environment:
        monkeypatch.delenv(name)
    given = [f"{name}={value}" for name, value in endpoint.options.items()]
    options = [word for each in given for word in ("--storage-option", each)]
    verified = command_line(tmp_path, "checkpoints", "verify", prefix, *options)
    assert verified.returncode == 0, verified.stderr
    assert rt.open_checkpoints(prefix, storage_options=endpoint.options).find("latest").id == 7
    for name, value in endpoint.options.items():
        monkeypatch.setenv(f"MINIRT_CHECKPOINTING_STORAGE_OPTIONS_{name.upper()}", value)
    shown = command_line(tmp_path, "checkpoints", "list", prefix)
    assert shown.returncode == 0, shown.stderr


def test_secrets_are_not_shown(endpoint: Endpoint, prefix: str) -> None:
    checkpointing = rt.Checkpointing(prefix, storage_options=endpoint.options)
    store = ObjectStore(prefix, endpoint.options)
    shown = f"{checkpointing!r} {store!r} {CheckpointStorage(store, 0)!r}"
    assert endpoint.secret not in shown


def begin_upload(endpoint: Endpoint, path: str) -> None:
    """What a process leaves that dies while it uploads in parts."""
    files = endpoint.filesystem()
    bucket, key, _ = files.split_path(path)
    files.call_s3("create_multipart_upload", Bucket=bucket, Key=key)


def uploads(endpoint: Endpoint, prefix: str) -> list[str]:
    """The last parts of the names of uploads that are not complete."""
    files = endpoint.filesystem()
    bucket, key, _ = files.split_path(prefix)
    page = files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
    return sorted(found["Key"].rpartition("/")[2] for found in page.get("Uploads", []))


def test_the_next_generation_aborts_uploads_that_crashed_below_its_own_prefix_only(
    endpoint: Endpoint, prefix: str
) -> None:
    files = [
        "job/chk-00000007-g00000001/v0-s0.part",
        "job/chk-00000009-g00000003/of-a-successor.part",
        "job/unknown",
        "job-2/chk-00000007-g00000001/of-another-job.part",
    ]
    for file in files:
        begin_upload(endpoint, f"{prefix}/{file}")
    if len(uploads(endpoint, prefix)) < len(files):
        pytest.skip("this server does not list uploads by prefix, as MinIO; it aborts them itself")
    storage = CheckpointStorage(ObjectStore(f"{prefix}/job"), inline_bytes_max=0)
    assert storage.claim_generation() == 1
    assert storage.claim_generation() == 2
    storage.sweep()
    assert uploads(endpoint, prefix) == ["of-a-successor.part", "of-another-job.part", "unknown"]


def test_uploads_that_may_not_be_listed_are_logged_and_the_job_goes_on(
    store: ObjectStore, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.plan = lambda request: Fault.FORBIDDEN if not request.key else None
    CheckpointStorage(store, inline_bytes_max=0).sweep()
    assert len(proxy.faults) == 1
    assert "could not be aborted" in caplog.text


def test_a_sink_aborts_uploads_of_earlier_generations_of_its_own_operator(
    endpoint: Endpoint, prefix: str
) -> None:
    sink = rt.JsonlSink(f"{prefix}/out")
    pending = [pending_folder(sink, uid) for uid in ("out", "other")]
    begin_upload(endpoint, f"{pending[0]}/00000-0001-0000-abcdef01.jsonl.pending")
    begin_upload(endpoint, f"{pending[0]}/00000-0002-0000-abcdef02.jsonl.pending")
    begin_upload(endpoint, f"{pending[1]}/00000-0001-0000-abcdef03.jsonl.pending")
    if len(uploads(endpoint, prefix)) < 3:
        pytest.skip("this server does not list uploads by prefix, as MinIO; it aborts them itself")
    sink.discard_uncommitted([], SinkIdentity("job", "out"), before_generation=2)
    assert [name.rpartition("-")[2] for name in uploads(endpoint, prefix)] == [
        "abcdef03.jsonl.pending",
        "abcdef02.jsonl.pending",
    ]


def pending_folder(sink: rt.JsonlSink, uid: str) -> str:
    """Where the sink puts what is pending, found by having it write something."""
    writer = sink.open_writer(SinkContext(SinkIdentity("job", uid), "out", 0, 1, 1))
    writer.write(Rows([{"a": 1}]))
    prepared = writer.prepare(1)
    assert prepared.finish is not None
    prepared.finish()
    return f"s3://{prepared.handles[0]['pending'].rpartition('/')[0]}"


def test_a_child_of_a_fork_has_connections_of_its_own_and_leaves_those_of_its_parent_alone(
    endpoint: Endpoint, prefix: str
) -> None:
    store = ObjectStore(prefix, endpoint.options)
    store.write("a", b"1")
    inherited = weakref.ref(open_filesystem(prefix, endpoint.options)[0])
    child = os.fork()
    if child == 0:
        try:
            own: ObjectStore = pickle.loads(pickle.dumps(store))
            store.write("b", own.read("a"))
            gc.collect()
            another = open_filesystem(prefix, endpoint.options)[0] is not inherited()
            os._exit(0 if another and inherited() is not None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.write("c", b"1")
    assert store.list() == ["a", "b", "c"]


def test_listings_are_not_cached_whatever_the_options_say(endpoint: Endpoint, prefix: str) -> None:
    wanted = {**endpoint.options, "use_listings_cache": True}
    files, path = open_filesystem(prefix, wanted)
    endpoint.filesystem().pipe_file(f"{path}/a", b"1")
    assert files.ls(path, detail=False) == [f"{path}/a"]
    endpoint.filesystem().pipe_file(f"{path}/b", b"1")
    assert files.ls(path, detail=False) == [f"{path}/a", f"{path}/b"]


def test_file_systems_are_shared_by_all_that_have_the_same_options(endpoint: Endpoint) -> None:
    one, _ = open_filesystem("s3://minirt/a", endpoint.options)
    assert open_filesystem("s3://minirt/b", endpoint.options)[0] is one
    assert open_filesystem("s3://minirt/b", endpoint.at("http://x").options)[0] is not one


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(rt.StorageError, match="names no bucket"):
        ObjectStore("s3://").write("a", b"1")
