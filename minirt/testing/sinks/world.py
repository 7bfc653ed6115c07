"""Plays a life with a sink, as the coordinator and the workers of a job deal with it, and judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgpack

from minirt.data.batch import Rows
from minirt.errors import SinkDataError, SupersededError
from minirt.io.base import (
    Committable,
    CommitterContext,
    Handle,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    commits_by_itself,
)
from minirt.testing.faults import ProcessDiedError
from minirt.testing.identities import played
from minirt.testing.sinks.lives import Life, Step
from minirt.testing.sinks.trial import Fault, FaultyStaging, SinkTrial, with_faults

SUBTASKS = 2
JOB = played("job a", "out")
_OTHER_JOB = played("job b", "out")
_IDS = 1_000_000
"""Records of a subtask, and those of another job, have ids of their own."""


@dataclass(slots=True)
class Outcome:
    """How a life went; nothing is `wrong` with it if all is well."""

    life: Life
    trace: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    faults: int = 0
    """How many struck."""


def play(life: Life, trial: SinkTrial) -> Outcome:
    """Live through all steps, or until something is wrong."""
    trial.begin()
    world = _World(life, trial)
    try:
        for step in (*life.steps, None):
            world.live(step)
            if world.outcome.wrong:
                break
    finally:
        world.end()
    return world.outcome


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A complete checkpoint: what it commits, and how many records of each subtask it covers."""

    committables: tuple[Committable, ...]
    positions: tuple[int, ...]


@dataclass(slots=True)
class _Process:
    """A coordinator. `fault` is replaced from step to step: it dies once."""

    generation: int
    fault: Fault
    committer: SinkCommitter | None = None
    owed: tuple[Committable, ...] = ()


class _World:
    def __init__(self, life: Life, trial: SinkTrial) -> None:
        self.outcome = Outcome(life)
        self._trial = trial
        self._objects: dict[str, bytes] = {}
        self._manifests = [_Manifest((), (0,) * SUBTASKS)]
        self._positions = [0] * SUBTASKS
        self._writers: list[SinkWriter] = []
        self._carried: list[Committable] = []
        self._checkpoint_id = 0
        self._generation = 0
        self._fenced = 0
        """The highest generation whose committer is open."""
        self._current: _Process | None = None
        self._zombies: list[_Process] = []
        self._strangers = 0
        self._at_once = True
        self._given_up: set[int] = set()
        """The ids of records that nobody may ever see."""

    def live(self, step: Step | None) -> None:
        """Live through one step, or through the end."""
        note = self.outcome.trace.append
        note("the end" if step is None else step.in_words())
        try:
            if step is None:
                self._end_well()
            else:
                self._do(step)
        except Exception as error:
            self._complain(f"{type(error).__name__}: {error}")
        if not self.outcome.wrong:
            self._judge(complete=step is None)

    def end(self) -> None:
        """Release what is still open, whatever has become of it."""
        for process in [*self._zombies, *filter(None, [self._current])]:
            if process.committer is not None:
                process.fault = Fault(None, "", self.outcome.trace.append)
                process.committer.close()
        self._close_writers()

    def _do(self, step: Step) -> None:
        if step.kind == "restart":
            self._stop(zombie=False)
            self._start(step)
            return
        if step.kind == "replace":
            self._stop(zombie=True)
            self._start(step)
            return
        if self._current is None:
            self._start(None)
        {
            "write": self._write,
            "checkpoint": self._checkpoint,
            "fail": self._fail,
            "retry": self._retry,
            "repeat": self._repeat,
            "zombie": self._zombie_commits,
            "zombie discards": self._zombie_discards,
            "stranger": self._stranger,
            "fork": self._fork,
            "give up": self._give_up,
        }[step.kind](step)

    # What happens to the job itself.

    def _write(self, step: Step) -> None:
        subtask = step.subject % SUBTASKS
        first = self._positions[subtask]
        self._positions[subtask] = first + step.count
        ids = [subtask * _IDS + number for number in range(first, first + step.count)]
        self._writers[subtask].write(Rows([_record(id) for id in ids]))

    def _checkpoint(self, step: Step) -> None:
        self._carried += self._prepared()
        manifest = _Manifest(tuple(self._carried), tuple(self._positions))
        self._manifests.append(manifest)
        assert self._current is not None
        self._current.owed = manifest.committables
        self._commit(self._current, step)

    def _fail(self, step: Step) -> None:
        """A checkpoint that fails: what was prepared for it goes into the next manifest."""
        self._carried += self._prepared()

    def _retry(self, step: Step) -> None:
        assert self._current is not None
        self._commit(self._current, step)

    def _repeat(self, step: Step) -> None:
        """A manifest that was committed long ago, or now, is committed once more."""
        current = self._current
        assert current is not None
        older = self._manifests[-1 - step.subject % len(self._manifests)]
        self._commit(current, step)
        if self._current is not None and not current.owed and older.committables:
            self._guarded(
                current, step, lambda: self._committer(current).commit(older.committables)
            )

    def _give_up(self, step: Step) -> None:
        """The other side refuses what a complete checkpoint holds, and the next start gives it up.

        No later start commits it, nor does who was replaced: what is pending is gone.
        """
        self._carried += self._prepared()
        manifest = _Manifest(tuple(self._carried), tuple(self._positions))
        self._manifests.append(manifest)
        current = self._current
        assert current is not None
        current.owed = manifest.committables
        refusal = Fault(step.at or 0, "error before", self.outcome.trace.append, SinkDataError)
        current.fault.arm(refusal)
        self._guarded(current, step, lambda: self._commit_all(current), current.fault)
        self._stop(zombie=False)
        for zombie in [] if self._at_once else list(self._zombies):
            self._bury(zombie)
        self._given_up |= _covered(manifest) - set(self._trial.visible())
        dropped = list(manifest.committables)
        self._manifests = [
            replace(each, committables=tuple(c for c in each.committables if c not in dropped))
            for each in self._manifests
        ]
        self._start(step)

    def _prepared(self) -> list[Committable]:
        self._checkpoint_id += 1
        prepared = [writer.prepare(self._checkpoint_id) for writer in self._writers]
        stored = msgpack.packb([one.handles for one in prepared])
        for one in prepared:
            if one.finish is not None:
                one.finish()
        handles = [handle for own in msgpack.unpackb(stored) for handle in own]
        return [Committable(self._checkpoint_id, handle) for handle in handles]

    # Coordinators.

    def _stop(self, *, zombie: bool) -> None:
        """The workers are gone; the coordinator is, or it does not know that it was replaced."""
        current, self._current = self._current, None
        self._close_writers()
        if current is None:
            return
        if zombie:
            self._zombies.append(current)
        elif current.committer is not None:
            current.committer.close()

    def _start(self, step: Step | None) -> None:
        """A generation: it restores the newest manifest, commits it again, discards, opens writers."""
        self._generation += 1
        fault = self._fault(step)
        process = _Process(self._generation, fault)
        base = self._manifests[-1]
        self._carried, self._positions = [], list(base.positions)
        sink = with_faults(self._trial.sink(), fault)
        staging = FaultyStaging(self._objects, fault)

        def prepare() -> None:
            context = CommitterContext(JOB, "out", process.generation, staging)
            process.committer = sink.open_committer(context)
            self._fenced = process.generation
            process.owed = base.committables
            if base.committables:
                self._commit_all(process, restored=True)
            process.owed = ()
            process.committer.discard_uncommitted([one.handle for one in base.committables])

        self._current = process
        self._at_once = not commits_by_itself(sink)
        if self._guarded(process, step, prepare, fault):
            self._open_writers(sink)
        elif self._current is not None:
            self._stop(zombie=False)  # An error ends the generation.

    def _commit(self, process: _Process, step: Step | None) -> None:
        """Commit what a coordinator owes."""
        owed = process.owed
        if not owed:
            return
        if self._guarded(process, step, lambda: self._commit_all(process)):
            process.owed = ()
            if process is self._current:
                newest = max(one.checkpoint_id for one in owed)
                self._carried = [one for one in self._carried if one.checkpoint_id > newest]

    def _commit_all(self, process: _Process, *, restored: bool = False) -> None:
        """At once, or one by one where a sink commits handles by themselves."""
        committer, owed = self._committer(process), process.owed
        commit = committer.commit_restored if restored else committer.commit
        if self._at_once:
            commit(owed)
            return
        for one in owed:
            process.fault.call("commit a handle", lambda one=one: committer.commit([one]))  # type: ignore[misc]
        if restored:
            commit(owed)

    def _committer(self, process: _Process) -> SinkCommitter:
        assert process.committer is not None
        return process.committer

    def _guarded(
        self,
        process: _Process,
        step: Step | None,
        do: Callable[[], None],
        fault: Fault | None = None,
    ) -> bool:
        """Whether a coordinator could do something: not if it dies meanwhile, or gets an error for it."""
        if fault is None:
            self._arm(process, step)
        fault = process.fault
        superseded = process.generation < self._fenced
        try:
            do()
        except ProcessDiedError:
            self._count(fault)
            self._bury(process)
            return False
        except SupersededError:
            if process.generation == self._generation:
                self._complain("SupersededError, but nobody has taken over")
            self._bury(process)
            return False
        except Exception as error:
            self._count(fault)
            if not fault.struck:
                self._complain(f"{type(error).__name__}: {error}")
            return False
        self._count(fault)
        if superseded and self._at_once and process.owed:
            self._complain("a coordinator that was replaced could commit, and got no error")
        return True

    def _bury(self, process: _Process) -> None:
        if process.committer is not None:
            process.committer.close()
        if process in self._zombies:
            self._zombies.remove(process)
        elif process is self._current:
            self._current = None
            self._close_writers()

    def _zombie_commits(self, step: Step) -> None:
        """Who was replaced and has not noticed goes on with what it last had to commit, or repeats that."""
        zombie = self._zombie(step)
        if zombie is not None:
            zombie.owed = zombie.owed or self._manifests[-1].committables
            if zombie.owed:
                self._commit(zombie, step)

    def _zombie_discards(self, step: Step) -> None:
        zombie = self._zombie(step)
        if zombie is not None:
            committer = self._committer(zombie)
            self._guarded_discard(zombie, step, committer)

    def _guarded_discard(self, zombie: _Process, step: Step, committer: SinkCommitter) -> None:
        owed, zombie.owed = zombie.owed, ()
        handles: Sequence[Handle] = [one.handle for one in owed]
        self._guarded(zombie, step, lambda: committer.discard_uncommitted(handles))
        zombie.owed = owed

    def _zombie(self, step: Step) -> _Process | None:
        alive = [zombie for zombie in self._zombies if zombie.committer is not None]
        return alive[step.subject % len(alive)] if alive else None

    # Others.

    def _stranger(self, step: Step) -> None:
        """Another job has the same place, the same uid, and ids of checkpoints that are far ahead."""
        sink = self._trial.sink()
        staging = FaultyStaging(self._objects, self._no_fault())
        generation = 50 + self._strangers
        committer = sink.open_committer(CommitterContext(_OTHER_JOB, "out", generation, staging))
        committer.discard_uncommitted([])
        writer = sink.open_writer(SinkContext(_OTHER_JOB, "out", 0, 1, generation, staging))
        writer.write(Rows([_record(SUBTASKS * _IDS + self._strangers)]))
        self._strangers += 1
        prepared = writer.prepare(1000 + self._strangers)
        if prepared.finish is not None:
            prepared.finish()
        committables = [Committable(1000 + self._strangers, one) for one in prepared.handles]
        committer.commit(committables)
        writer.close()
        committer.close()

    def _fork(self, step: Step) -> None:
        """Another job goes on from our newest checkpoint, and commits what that holds."""
        committables = self._manifests[-1].committables
        staging = FaultyStaging(self._objects, self._no_fault())
        identity = played("job c", "out")
        committer = self._trial.sink().open_committer(
            CommitterContext(identity, "out", 99, staging)
        )
        if committables:
            committer.commit_restored(committables)
        committer.discard_uncommitted([one.handle for one in committables])
        committer.close()

    # The end, and what must hold at any time.

    def _end_well(self) -> None:
        """Nothing goes wrong any more: another start, and a last checkpoint."""
        self._stop(zombie=False)
        self._start(None)
        self._write(Step("write", 0, 1))
        self._checkpoint(Step("checkpoint"))

    def _judge(self, *, complete: bool) -> None:
        seen = sorted(self._trial.visible())
        if len(set(seen)) < len(seen):
            twice = sorted({id for id in seen if seen.count(id) > 1})
            self._complain(f"shown twice: {twice}")
        strangers = {SUBTASKS * _IDS + number for number in range(self._strangers)}
        own = set(seen) - strangers
        if lost := strangers - set(seen):
            self._complain(f"lost, of another job: {sorted(lost)}")
        if found := self._given_up & set(seen):
            self._complain(f"shown, although given up: {sorted(found)}")
        covered = [_covered(manifest) - self._given_up for manifest in self._manifests]
        if early := own - covered[-1]:
            self._complain(f"shown before a checkpoint holds them: {sorted(early)}")
        elif self._at_once and own not in covered:
            self._complain(f"shown in part, what no checkpoint holds as a whole: {sorted(own)}")
        current = self._current
        if current is not None and not current.owed and (lost := covered[-1] - own):
            self._complain(f"lost, although committed: {sorted(lost)}")
        if complete and current is None:
            self._complain("the job could not be started although nothing goes wrong any more")

    def _open_writers(self, sink: Sink) -> None:
        staging = FaultyStaging(self._objects, self._no_fault())
        for subtask in range(SUBTASKS):
            context = SinkContext(JOB, "out", subtask, SUBTASKS, self._generation, staging)
            self._writers.append(sink.open_writer(context))

    def _close_writers(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.close()

    def _arm(self, process: _Process, step: Step | None) -> None:
        """The next fault of a process that goes on: its calls already have it at hand."""
        fresh = self._fault(step)
        process.fault.arm(fresh)

    def _fault(self, step: Step | None) -> Fault:
        note = self.outcome.trace.append
        return Fault(None, "", note) if step is None else Fault(step.at, step.fault, note)

    def _no_fault(self) -> Fault:
        return self._fault(None)

    def _count(self, fault: Fault) -> None:
        self.outcome.faults += fault.struck

    def _complain(self, text: str) -> None:
        self.outcome.wrong.append(text)


def _covered(manifest: _Manifest) -> set[int]:
    return {
        subtask * _IDS + number
        for subtask, position in enumerate(manifest.positions)
        for number in range(position)
    }


def _record(id: int) -> dict[str, object]:
    return {"id": id, "name": f"row {id}"}
