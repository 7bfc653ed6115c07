"""Executing a job: what is refused at the door, and what is handed to the runtime."""

from __future__ import annotations

import sys
import types

import fsspec
import pytest

from minirt import (
    Checkpointing,
    ConfigurationError,
    CsvSource,
    DiscardSink,
    Environment,
    HostCluster,
    JobObserver,
    JsonlSink,
    JsonlSource,
    Options,
    ParquetSink,
    Restart,
    SequenceSource,
)
from minirt.modes import MODES
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.savepoint_requests import Afterwards
from minirt.run_settings import RunSettings
from minirt.runtime.program.savepoint_desk import SavepointDesk
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore

CHECKPOINTING = Checkpointing("memory://checkpoints")


@pytest.fixture
def calls(monkeypatch):
    """The calls of a runtime that runs nothing."""
    made = []

    def execute_job(graph, settings, runner):
        made.append((graph, settings, runner))
        return "result"

    module = types.ModuleType("minirt.runtime.program.execute")
    module.execute_job = execute_job
    module.start_job = lambda graph, settings: execute_job(graph, settings, "processes")
    monkeypatch.setitem(sys.modules, "minirt.runtime", types.ModuleType("minirt.runtime"))
    monkeypatch.setitem(sys.modules, "minirt.runtime.program.execute", module)
    return made


@pytest.fixture
def job(env, stream, nowhere):
    stream.sink(nowhere())
    return env


def test_a_job_is_handed_to_the_runtime_with_all_options(job, calls):
    restart, options, observer = Restart.none(), Options(buffer_timeout="1ms"), JobObserver()
    given = {
        "checkpointing": CHECKPOINTING,
        "restore": "latest",
        "restart": restart,
        "options": options,
        "allow_non_restored_state": True,
        "allow_restore_fallback": True,
        "observer": observer,
    }
    assert job.execute("delays", runner="inline", **given) == "result"
    assert job.start("delays", **given) == "result"
    settings = RunSettings(
        CHECKPOINTING,
        RestoreOptions("latest", allow_non_restored_state=True, allow_fallback=True),
        restart,
        options,
        observer,
    )
    graph = job.graph("delays")
    assert calls == [(graph, settings, "inline"), (graph, settings, "processes")]


def test_a_run_has_the_cluster_of_its_environment_unless_it_is_given_one(calls, nowhere):
    own, other = HostCluster("10.0.0.1:7070"), HostCluster("10.0.0.2:7070")
    env = Environment(cluster=own)
    env.source(SequenceSource(3)).sink(nowhere())
    env.start()
    env.start(cluster=other)
    assert [settings.cluster for _, settings, _ in calls] == [own, other]
    with pytest.raises(ConfigurationError, match="cluster: expected HostCluster, got 'here'"):
        Environment(cluster="here")


@pytest.mark.parametrize("restore", [7, "none", "latest", "savepoints/delays/7"])
def test_a_checkpoint_is_restored_by_id_path_or_word(job, calls, restore):
    job.execute(restore=restore, checkpointing=CHECKPOINTING)
    assert calls[0][1].restore.which == restore


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restore": "latest"}, 'restore="latest" needs checkpointing'),
        ({"restore": "none"}, 'restore="none" needs checkpointing'),
        ({"restore": 7}, "restore=7 needs checkpointing"),
        ({"restore": ""}, "path of a checkpoint"),
        ({"restore": True}, "path of a checkpoint"),
        ({"allow_non_restored_state": True}, "no effect with restore=None"),
        (
            {"allow_non_restored_state": True, "restore": "none", "checkpointing": CHECKPOINTING},
            'no effect with restore="none"',
        ),
        (
            {"checkpointing": "checkpoints"},
            "expected Checkpointing, got 'checkpoints'; write Checkpointing",
        ),
        ({"options": {}}, "expected Options"),
        ({"restart": "none"}, "a strategy such as Restart"),
        ({"restart": Restart.none}, "a strategy such as Restart"),
        ({"runner": "threads"}, "runner must be"),
        ({"job_name": " "}, "name of a job"),
    ],
)
def test_contradictory_options_are_refused_before_anything_starts(job, calls, options, message):
    with pytest.raises(ConfigurationError, match=message):
        job.execute(**options)
    assert calls == []


def test_a_wrong_job_never_reaches_the_runtime(env, stream, calls):
    stream.map(str)
    with pytest.raises(ConfigurationError, match="goes nowhere"):
        env.execute()
    assert calls == []


def test_the_job_goes_by_the_name_of_its_environment_unless_given_one(numbers, nowhere):
    env = Environment("nightly")
    env.source(numbers()).sink(nowhere())
    assert env.graph().name == "nightly"
    assert env.graph("other").name == "other"
    assert env.plan().startswith("job nightly:")
    assert env.plan("other").startswith("job other:")


@pytest.mark.parametrize(
    ("storage", "restore"),
    [("memory://x", None), ("simplecache::memory://x", None), ("{folder}", "memory://savepoint")],
)
def test_storage_of_one_process_is_refused_for_workers(tmp_path, storage, restore):
    checkpointing = Checkpointing(storage.format(folder=tmp_path))
    env = Environment()
    env.source(SequenceSource(3)).sink(DiscardSink())
    for start in (env.execute, env.start):
        with pytest.raises(ConfigurationError, match=r"memory of one process.*inline"):
            start(checkpointing=checkpointing, restore=restore)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        (JsonlSource("memory://in/a.jsonl"), DiscardSink()),
        (CsvSource("memory://in/a.csv"), DiscardSink()),
        (SequenceSource(3), JsonlSink("memory://out")),
        (SequenceSource(3), ParquetSink("memory://out")),
    ],
    ids=lambda end: type(end).__name__,
)
def test_files_in_the_memory_of_the_program_are_refused_for_workers(source, sink):
    files = fsspec.filesystem("memory")
    files.pipe({"/in/a.jsonl": b'{"n": 1}\n', "/in/a.csv": b"n\n1\n"})
    env = Environment()
    env.source(source).sink(sink)
    for start in (env.execute, env.start):
        with pytest.raises(ConfigurationError, match=r"memory of one process.*inline"):
            start()


def test_a_savepoint_in_the_memory_of_the_program_is_refused(tmp_path):
    storage = CheckpointStorage(ObjectStore(str(tmp_path)), inline_bytes_max=0)
    desk = SavepointDesk(storage, MODES, "aligned")
    with pytest.raises(ConfigurationError, match="memory of one process"):
        desk.ask(lambda event: None, "memory://savepoint", None, Afterwards.GO_ON)
