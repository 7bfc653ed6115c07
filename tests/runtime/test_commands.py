"""A command to subtasks is written once: a class of the protocol, and a case of the subtask.

Here a test adds one, and subclasses nothing but the protocol and the subtask. It arrives wherever subtasks
run: in worker processes, inline, in the simulator and in an exploration.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.errors import ProtocolError
from minirt.graph.planner import build_execution_graph
from minirt.protocol import subtask_commands
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import JobCommand, JobEvent, JobStatus
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.program import execute
from minirt.runtime.subtask import assembly
from minirt.runtime.subtask.subtask import Subtask
from minirt.testing import TransactionalSink, simulate
from minirt.testing.exploration import explore
from minirt.testing.faults import Faults
from tests.naming import files_that, names_in

# What adding a command takes.


@dataclass(frozen=True, slots=True)
class LeaveNote(SubtaskCommand):
    """Write into a folder that you were here."""

    folder: str

    to_sources = False


class NotingProtocol(JobProtocol):
    """Orders it as soon as all subtasks run."""

    folder = ""

    def handle(self, event: JobEvent, now: float, wall: float | None = None) -> list[JobCommand]:
        before = self.status
        commands = super().handle(event, now, wall)
        if self.status is JobStatus.RUNNING and before is not JobStatus.RUNNING:
            return [LeaveNote(self.generation, self.folder), *commands]
        return commands


class NotingSubtask(Subtask):
    """Obeys it."""

    def obey(self, command: SubtaskCommand) -> None:
        match command:
            case LeaveNote(folder=folder):
                Path(folder, f"{self.id.vertex}-{self.id.index}").write_text(str(os.getpid()))
            case _:
                super().obey(command)


# The test.


class Installing:
    """A map function. To load it puts the subtask above in place, in worker processes as well."""

    def __reduce__(self) -> Any:
        return (_install, ())

    def __call__(self, record: int) -> int:
        return record + 1


def _install() -> Installing:
    assembly.Subtask = NotingSubtask  # type: ignore[misc]
    return Installing()


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the notes are, once the command was sent."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setattr(NotingProtocol, "folder", str(folder))
    monkeypatch.setattr(execute, "JobProtocol", NotingProtocol)
    monkeypatch.setattr(assembly, "Subtask", Subtask)  # Put back at the end.
    return folder


def job(sink: rt.Sink, count: int = 20, splits: int = 2) -> rt.Environment:
    env = rt.Environment("noting", parallelism=splits)
    numbers = env.source(rt.SequenceSource(count, splits=splits), uid="numbers")
    numbers.rebalance().map(Installing(), uid="next").sink(sink, uid="out")
    return env


def subtasks_of(env: rt.Environment) -> set[SubtaskId]:
    return set(build_execution_graph(env.graph()).subtasks())


def writers(notes: Path) -> dict[SubtaskId, int]:
    """Who has obeyed, and in which process."""
    return {
        SubtaskId(*map(int, note.name.split("-"))): int(note.read_text())
        for note in notes.iterdir()
    }


def one_worker_each(sink: TransactionalSink) -> None:
    job(rt.CollectSink()).execute(runner="processes")


def inline(sink: TransactionalSink) -> None:
    job(rt.CollectSink()).execute(runner="inline")


def simulated(sink: TransactionalSink) -> None:
    options = rt.Options(
        placement="slots"
    )  # Each worker has a source, and must be heard at the end.
    simulate(job(sink), seed=1, faults=Faults.none(), options=options).check()
    assert sorted(sink.rows) == list(range(1, 21))


def explored(sink: TransactionalSink) -> None:
    explore(job(sink, 1, splits=1), "aligned", lambda rows: None, checkpoints=0).check()


@pytest.mark.processes
@pytest.mark.parametrize("run", [one_worker_each, inline, simulated, explored])
def test_a_new_command_arrives_at_all_subtasks(
    run: Callable[[TransactionalSink], None], notes: Path
) -> None:
    run(TransactionalSink())
    env = job(TransactionalSink(), splits=1 if run is explored else 2)
    obeyed = writers(notes)
    assert obeyed.keys() == subtasks_of(env)
    if run is one_worker_each:
        assert len(set(obeyed.values()) - {os.getpid()}) == len(obeyed)
    else:
        assert set(obeyed.values()) == {os.getpid()}


def test_a_command_that_says_not_who_gets_it_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="does not say whether it is only for sources"):

        @dataclass(frozen=True)
        class ForNobody(SubtaskCommand):
            pass


def test_a_subtask_refuses_a_command_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execute, "JobProtocol", NotingProtocol)
    env = rt.Environment("noting")
    env.source(rt.SequenceSource(3), uid="numbers").sink(rt.CollectSink(), uid="out")
    with pytest.raises(rt.JobFailedError, match="does not know the command LeaveNote") as failed:
        env.execute(runner="inline")
    assert isinstance(failed.value.__cause__, ProtocolError)


# Which files know a command. Those of all are what adding one touches; docs/architecture.md lists them.

EVERY_COMMAND = {
    "protocol/subtask_commands.py",
    "runtime/subtask/subtask.py",
}
DECIDES = {
    "TriggerCheckpoint": {"protocol/families.py"},
    "StoreSlices": {"protocol/uncoordinated.py"},
    "LimitDrift": {"protocol/drift.py"},
}
"""What orders a command; the others are ordered by `protocol/checkpoints.py`."""
MORE = {
    "TriggerCheckpoint": {
        "runtime/network/transit.py",  # The barrier in it has an age.
        "testing/exploration/world.py",  # Counts checkpoints.
        "testing/exploration/describe.py",
    },
    "AbortCheckpoint": {
        "runtime/worker/orders.py",  # Snapshots wait in the worker, not in the subtask.
        "testing/exploration/world.py",
    },
}


def test_between_the_protocol_and_the_subtask_nobody_names_a_command() -> None:
    commands = {
        name
        for name, member in vars(subtask_commands).items()
        if isinstance(member, type) and issubclass(member, SubtaskCommand)
    } - {"SubtaskCommand"}
    assert len(commands) >= 4
    for command in commands:
        known = files_that(lambda tree, command=command: command in names_in(tree))
        decides = DECIDES.get(command, {"protocol/checkpoints.py"})
        assert known == EVERY_COMMAND | decides | MORE.get(command, set()), command
