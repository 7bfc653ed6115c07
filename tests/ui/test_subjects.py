"""What a page asks a running job for, and what storage tells of one that is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.errors import ConfigurationError
from minirt.monitoring.description import without_password
from minirt.operations.exchange import JobHasEndedError
from minirt.operations.registry import Entry, Registry
from minirt.operations.running import LocalJob, only_job
from minirt.protocol.manifest import VertexEntry
from minirt.protocol.stored_edges import EdgeEntry
from minirt.runtime.program.job import Job
from minirt.ui.live import LiveJob
from minirt.ui.reading import Plain
from minirt.ui.snapshot import Course, snapshot
from minirt.ui.stored import StoredJob, figures_of, plan_of
from tests.ui.conftest import done_job
from tests.ui.samples import NOW, SINK, SLOW, SOURCE, checkpoint, description, figures


class Scripted:
    """Answers as a job does, and notes what it was asked for."""

    name = "sample"

    def __init__(self, checkpoints: int = 0) -> None:
        self.asked: list[str] = []
        self.ended = False
        self.known = [checkpoint(id) for id in range(1, checkpoints + 1)]
        self.figures = figures(SOURCE, SLOW, SINK)
        self.under_way: list[Plain] = []
        self.next: Scripted | None = None

    def path(self, given: str) -> str:
        return given

    def successor(self) -> Scripted | None:
        return self.next

    def ask(self, request: Mapping[str, Any], timeout: float | None = None) -> Plain:
        if self.ended:
            raise JobHasEndedError("over")
        self.asked.append(request["request"])
        return getattr(self, request["request"].replace(" ", "_") + "_")(request)  # type: ignore[no-any-return]

    def description_(self, request: Mapping[str, Any]) -> Plain:
        return {**description(SOURCE, SLOW, SINK), "requests": ["cancel", "figures", "stop"]}

    def figures_(self, request: Mapping[str, Any]) -> Plain:
        newest = self.known[-1] if self.known else None
        told = {"completed": len(self.known), "newest": newest, "under_way": self.under_way}
        self.figures["checkpoints"] |= told
        return self.figures

    def checkpoints_(self, request: Mapping[str, Any]) -> Plain:
        shown = self.known[request["known"] :][:500]
        end = request["known"] + len(shown)
        return {"total": len(self.known), "next": end, "checkpoints": shown}

    def checkpoint_(self, request: Mapping[str, Any]) -> Plain:
        return {**checkpoint(request["checkpoint_id"]), "subtasks": [], "missing": []}

    def restarts_(self, request: Mapping[str, Any]) -> Plain:
        return {"restarts": [{"at": NOW, "generation": 1, "delay_s": 1.0, "cause": "boom"}]}

    def under_way_(self, request: Mapping[str, Any]) -> Plain:
        return {"checkpoints": [{**checkpoint(9), "subtasks": [], "missing": ["x"]}]}


def test_only_what_may_have_changed_is_asked_for() -> None:
    answers = Scripted(checkpoints=1200)
    job = LiveJob(answers)
    told = job.read()
    assert answers.asked == ["description", "figures", *["checkpoints"] * 3, "checkpoint"]
    assert [one["checkpoint_id"] for one in told.checkpoints] == [*range(1, 1201)]
    assert told.uses == ("stop", "cancel")
    answers.asked.clear()
    job.read()
    assert answers.asked == ["figures"]
    answers.known.append(checkpoint(1201))
    answers.figures["restarts"] = 1
    answers.asked.clear()
    told = job.read()
    assert answers.asked == ["figures", "checkpoints", "checkpoint", "restarts"]
    assert told.events[0]["cause"] == "boom"


def test_parts_of_a_checkpoint_under_way_are_asked_for_once_it_takes_long() -> None:
    answers = Scripted()
    job = LiveJob(answers)
    answers.under_way = [{"checkpoint_id": 9, "triggered_at": NOW - 0.5, "missing": ["x"]}]
    assert job.read().under_way == ()
    answers.under_way[0]["triggered_at"] = NOW - 5
    told = job.read()
    assert [one["missing"] for one in told.under_way] == [["x"]]
    [shown] = snapshot(told, Course())["timelines"]
    assert (shown["checkpoint_id"], shown["missing"]) == (9, 1)


def test_a_job_that_has_ended_is_shown_as_it_was_last() -> None:
    answers = Scripted(checkpoints=2)
    job = LiveJob(answers)
    job.read()
    answers.ended = True
    told = job.read()
    assert (told.live, told.uses, told.figures["status"]) == (False, (), "ended")
    assert "minirt ui /stored" in str(told.note)
    assert snapshot(told, Course())["verdict"][0]["text"] == "The job is ended."


def test_a_job_that_was_rescaled_is_followed() -> None:
    answers, following = Scripted(checkpoints=2), Scripted(checkpoints=1)
    job = LiveJob(answers)
    job.read()
    answers.ended = True
    assert not job.read().live
    answers.next = following
    told = job.read()
    assert told.live
    assert len(told.checkpoints) == 1


def test_who_follows_is_a_younger_job_of_that_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "jobs")
    first, *others = (
        replace(Entry.new(name, at), id=id)
        for id, name, at in (
            ("first", "sample", NOW),
            ("other", "else", NOW + 1),
            ("older", "sample", NOW - 9),
        )
    )
    for entry in (first, *others):
        registry.add(entry)
    job = LocalJob(first, registry)
    assert job.successor() is None
    second = Entry.new("sample", NOW + 2)
    registry.add(second)
    following = job.successor()
    assert following is not None
    assert following.entry == second


def test_a_running_job_tells_its_graph_its_configuration_and_no_secrets(job: Job) -> None:
    told = LiveJob(only_job()).read()
    names = [vertex["name"] for vertex in told.description["vertices"]]
    assert names == ["SequenceSource", "<script>alert(1)</script> > DiscardSink"]
    assert told.description["links"] == [{"source": 0, "target": 1, "kind": "rebalance"}]
    assert told.description["configuration"]["checkpointing.mode"] == "unaligned"
    assert told.uses == ("savepoint", "stop", "cancel")
    assert told.newest is not None
    assert len(told.newest["subtasks"]) == 3
    assert len(told.checkpoints) >= 3
    part = told.newest["subtasks"][0]
    assert part["acknowledged_after_s"] > 0
    logged = {line["text"]: line for line in told.logs}
    assert set(logged) == {f"no price <b> for item {number}" for number in (3, 4)}
    line = logged["no price <b> for item 3"]
    assert (line["level"], line["logger"], line["operator"]) == ("WARNING", "shop", "same")
    assert {one["subtask"] for one in logged.values()} == {0, 1}


def test_storage_options_and_passwords_are_not_told(tmp_path: Path) -> None:
    from minirt.graph.planner import build_execution_graph
    from minirt.monitoring.description import describe_job
    from minirt.run_settings import RunSettings

    env = rt.Environment("secret")
    env.source(rt.SequenceSource(1), uid="numbers").sink(rt.DiscardSink(), uid="out")
    checkpointing = rt.Checkpointing("s3://bucket/x", storage_options={"secret": "hidden-value"})
    told = describe_job(
        build_execution_graph(env.graph()), RunSettings(checkpointing), "aligned", rt.Restart.none()
    )
    assert "hidden-value" not in str(told)
    assert told["configuration"]["checkpointing.storage_options"] == "secret"
    assert without_password("ftp://user:pass@host/path") == "ftp://***@host/path"
    assert without_password("/a@b/c") == "/a@b/c"


def test_storage_tells_of_a_job_that_is_over(tmp_path: Path) -> None:
    with done_job(tmp_path) as storage:
        job = StoredJob(rt.open_checkpoints(storage))
        told = job.read()
        shown: Any = snapshot(told, Course())
        newest = shown["strip"]["shown"][-1]
        parts = job.checkpoint(newest["checkpoint_id"], newest["generation"])
        with pytest.raises(ConfigurationError, match="remembers no checkpoint 999"):
            job.checkpoint(999, 1)
    assert shown["job"]["status"] == "finished"
    assert [one["name"] for one in shown["operators"]] == ["numbers", "sums > out"]
    assert [(link["source"], link["target"]) for link in shown["links"]] == [(0, 1)]
    assert (shown["live"], shown["actions"]) == (False, [])
    assert len(parts["subtasks"]) == 2
    assert shown["events"][-1]["event"] == "finished"
    assert job.read() is told  # It is over: nothing is read again.
    with pytest.raises(ConfigurationError, match="cannot cancel a job by its storage"):
        job.act("cancel", {})


def test_the_totals_of_a_job_that_is_over_become_averages_over_its_life() -> None:
    times = {"busy_s": 6.0, "idle_s": 10.0, "soft_backpressure_s": 4.0, "hard_backpressure_s": 0.0}
    flows = {"records_in": 50, "records_out": 100, "bytes_in": 0, "bytes_out": 0}
    one = {"operator": "a", "name": "a", "parallelism": 2, **times, **flows}
    ended = {"event": "failed", "job": "x", "at": 9.0, "generation": 1, "restarts": 3}
    told = figures_of([{**ended, "cause": "boom", "operators": [one]}], [], None)
    rates = told["operators"][0]["per_second"]
    # Two subtasks have lived for ten seconds each.
    assert (rates["busy_ms"], rates["soft_backpressure_ms"]) == (300, 200)
    assert (rates["records_in"], rates["records_out"]) == (5, 10)
    assert (told["status"], told["restarts"], told["last_failure"]) == ("failed", 3, "boom")
    killed = figures_of([{**ended, "event": "running"}], [], None)
    assert killed["status"] == "last seen running"
    alone = figures_of([{**ended, "event": "comeback"}], [], None)
    assert alone["status"] == "last seen running"


def vertex(id: int, *uids: str, edges: tuple[str, ...] = ()) -> VertexEntry:
    return VertexEntry(id, uids, "x", 1, 128, tuple(EdgeEntry(key, 1, "") for key in edges))


def links_of(*entries: VertexEntry) -> list[tuple[int, int]]:
    return [(link["source"], link["target"]) for link in plan_of(entries)["links"]]


def test_edges_lead_from_the_uid_that_fits_best() -> None:
    edges = ("a > c:0", "a > b > c:0", "a[late] > c:1#1", "c > d:0")
    assert links_of(vertex(0, "a"), vertex(1, "a > b"), vertex(2, "c", "d", edges=edges)) == [
        *((0, 2), (1, 2), (0, 2)),
    ]


def test_operators_without_state_are_known_by_the_edges_that_lead_to_them() -> None:
    plan = plan_of(
        [
            vertex(0, "numbers", edges=("numbers > even:0", "even > checked:0")),
            vertex(1, "refused", edges=("checked[bad] > refused:0",)),
            vertex(2, "out", edges=("checked > slow:0", "slow > out:0")),
        ]
    )
    assert [one["uids"] for one in plan["vertices"]] == [
        *(["numbers", "even", "checked"], ["refused"], ["slow", "out"]),
    ]
    assert [(link["source"], link["target"]) for link in plan["links"]] == [(0, 1), (0, 2)]


@pytest.mark.processes
def test_a_job_that_is_over_is_as_its_running_description_said(tmp_path: Path) -> None:
    """Its chains, the links between them, and the figures of both."""
    env = rt.Environment("over", parallelism=2)
    numbers = env.source(rt.SequenceSource(400), uid="numbers").map(lambda n: n, uid="same")
    numbers.sink(rt.DiscardSink(), uid="aside")
    slow = numbers.rebalance().map(lambda n: n, uid="slow")
    slow.key_by(lambda n: n % 3).reduce(lambda a, b: a + b, uid="sums").sink(rt.DiscardSink())
    job = env.start(checkpointing=rt.Checkpointing(tmp_path / "over", interval="100ms"))
    described = job.description
    job.wait(60)
    stored = StoredJob(rt.open_checkpoints(tmp_path / "over")).read()
    for one, other in zip(described["vertices"], stored.description["vertices"], strict=True):
        assert one["uids"][0] == other["uids"][0]
        assert {*one["uids"]} == {*other["uids"]}
    pairs = [
        [(link["source"], link["target"]) for link in plan["links"]]
        for plan in (described, stored.description)
    ]
    assert pairs[0] == pairs[1]
    told = snapshot(stored, Course())
    assert all(one["times"] is not None for one in told["operators"])
    assert all(link["rate"] is not None for link in told["links"])
