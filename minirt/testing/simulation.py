"""A simulation that goes on: who runs, what strikes it, and when it is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minirt.errors import SupersededError
from minirt.operators.sink import SinkSpec
from minirt.protocol.job_events import AnswerSavepoint, JobStatus
from minirt.testing.coordinator import SimulatedCoordinator, SimulatedJob, Surroundings
from minirt.testing.faults import Chaos
from minirt.testing.result import CheckpointCounter, SimulationResult
from minirt.testing.schedule import Schedule, StalledError
from minirt.testing.sink import TransactionalSink
from minirt.testing.user import SimulatedUser

_NESTED_RATE = 0.15
_NESTED_STEPS = 20
_ACCESS_S_MAX = 3600.0
"""How long an access to storage may take while others go on."""
_SLEEP_STEPS = 1200
_ZOMBIE_STEPS = 300
_RESTART_STEPS = 60
_HANG_STEPS = 200
_FULL_STEPS = 1000
_ROOM_BYTES = (0, 500, 5000)


class Simulation(Surroundings):
    """The coordinators of a job, of which several may live at a time, and all that surrounds them."""

    def __init__(
        self,
        forms: Sequence[SimulatedJob],
        seed: int,
        schedule: Schedule,
        chaos: Chaos,
        user: SimulatedUser,
        *,
        stop_at_problem: bool,
    ) -> None:
        super().__init__(schedule, chaos)
        schedule.every_step = self._before_step
        self.sinks = {
            node.uid: node.spec.sink
            for form in forms
            for vertex in form.graph.vertices
            for node in vertex.operators
            if isinstance(node.spec, SinkSpec) and isinstance(node.spec.sink, TransactionalSink)
        }
        self._seed = seed
        self._forms = forms
        self._user = user
        self._stop_at_problem = stop_at_problem
        self._observer = CheckpointCounter()
        self._look: Callable[[str], None] = _nobody_looks
        self.may_refuse: Callable[[Exception | None], bool] = lambda error: False
        self.checkpoints_max: int | None = None
        self._coordinators: list[SimulatedCoordinator] = []
        self._starting = False
        self._form = forms[0]
        self._rescales = 0
        self._sleep_in_storage = schedule.random.random() < 0.5
        """Whether zombies fall asleep in the middle of storage commands only: there they do most harm."""
        self._finished = False
        self._anyone_failed = False

    def watch(self, on_checkpoint: Callable[[Mapping[str, bytes], str], None]) -> None:
        """Have somebody look at each completed checkpoint; what they raise is a problem."""

        def look(path: str) -> None:
            if not path.startswith("manifests/"):
                return
            try:
                on_checkpoint(dict(self.disks[self.storage_url].objects), path)
            except Exception as error:
                self.problems.append(f"{path}: {error}")

        self._look = look
        self.disks[self.storage_url].on_create = look

    def start_from(self, savepoint: Mapping[str, bytes]) -> None:
        """Begin with what an earlier simulation has stored."""
        self.origin = "simulated://origin"
        self.disks[self.origin].objects |= savepoint

    def run(self) -> SimulationResult:
        try:
            self._start_coordinator()
            while not self._over():
                self.schedule.step()
            if not (self._stopped or self._enough):
                self._let_zombies_end()
        except StalledError as stalled:
            self.problems.append(str(stalled))
        finally:
            self.schedule.end()
        restarts = sum(c.protocol.restarts for c in self._coordinators) + len(self._coordinators)
        return SimulationResult(
            seed=self._seed,
            finished=self._finished,
            problems=tuple(self.problems),
            committed={uid: sink.rows for uid, sink in self.sinks.items()},
            steps=self.schedule.steps,
            checkpoints_completed=self._observer.completed,
            checkpoints_failed=self._observer.failed,
            restarts=restarts - 1,
            comebacks=sum(c.protocol.comebacks.count for c in self._coordinators),
            rescales=self._rescales,
            faults=self.chaos.struck,
            savepoints=[dict(self.disks[s.path].objects) for s in self._user.published],
            trace=self.schedule.notes,
            traces=self._observer.traces,
        )

    @property
    def _stopped(self) -> bool:
        return self._stop_at_problem and bool(self.problems)

    @property
    def _enough(self) -> bool:
        most = self.checkpoints_max
        return most is not None and self._observer.completed >= most

    def _over(self) -> bool:
        if self._finished or self._stopped or self._enough:
            return True
        return self._anyone_failed and self._failed_for_good()

    # Coordinators.

    def _start_coordinator(self) -> None:
        """Whoever restarts the job believes that the coordinator before is dead."""
        self._starting = False
        if self._finished:
            return
        if self.origin and not self.has_checkpoints and not self._all_gone:
            self._replace_coordinator()  # Nobody else may make a first checkpoint that is passed over.
            return
        for older in self._coordinators:
            older.replaced = True
        number = len(self._coordinators) + 1
        if number > 1:
            form, self._form = self._form, self.schedule.random.choice(self._forms)
            self._rescales += form is not self._form
        coordinator = SimulatedCoordinator(self, self._form, number, self._observer)
        self.schedule.note(coordinator.name, f"starts, form {self._forms.index(self._form)}")
        self._coordinators.append(coordinator)
        self.schedule.add(coordinator)

    def _replace_coordinator(self) -> None:
        if not self._starting:
            self._starting = True
            self.schedule.later(_RESTART_STEPS, self._start_coordinator)

    def on_ended(self, coordinator: SimulatedCoordinator) -> None:
        self.schedule.note(coordinator.name, f"is {coordinator.status.value}")
        self._finished |= coordinator.status is JobStatus.FINISHED
        self._anyone_failed |= coordinator.status is JobStatus.FAILED
        if unanswered := self._user.unanswered(coordinator):
            self.problems.append(f"{coordinator.name} left {unanswered} requests without an answer")
        newest = coordinator is self._coordinators[-1] and not self._starting
        if coordinator.status is JobStatus.STOPPED and newest:
            self._starting = True
            self._start_elsewhere(coordinator)

    def _start_elsewhere(self, stopped: SimulatedCoordinator) -> None:
        """Claims fence within one storage only: no older coordinator may be left, or have gone on."""
        if not self._all_gone:
            self.schedule.later(_RESTART_STEPS, lambda: self._start_elsewhere(stopped))
            return
        savepoint = stopped.savepoint
        if savepoint is not None and self.is_current(stopped.protocol.generation):
            self.origin = savepoint.path
            self.storage_url += "1"
            self.disks[self.storage_url].on_create = self._look
        self._start_coordinator()

    def on_answer(self, coordinator: SimulatedCoordinator, answer: AnswerSavepoint) -> None:
        self._user.on_answer(coordinator, answer)

    def on_died(self, coordinator: SimulatedCoordinator) -> None:
        if coordinator is self._coordinators[-1] and not self._finished:
            self._replace_coordinator()

    def _failed_for_good(self) -> bool:
        """A coordinator that lost its job to a zombie is started again, once the zombie is gone too."""
        newest = self._coordinators[-1]
        if newest.status is not JobStatus.FAILED or self._starting:
            return False
        error = newest.error
        if not (isinstance(error, SupersededError) or self.may_refuse(error)):
            self.problems.append(f"the job failed: {error}")
            return True
        if self._all_gone:
            self._replace_coordinator()
        return False

    def _let_zombies_end(self) -> None:
        """Let zombies go on: what one does after the end of the job counts as well."""
        steps = _SLEEP_STEPS + _ZOMBIE_STEPS
        self.schedule.run(steps, until=lambda: self._all_gone)

    @property
    def _all_gone(self) -> bool:
        return all(coordinator.gone for coordinator in self._coordinators)

    def interleave(self, coordinator: SimulatedCoordinator) -> None:
        if coordinator.dead:
            return
        random = self.schedule.random
        newest = coordinator is self._coordinators[-1] and not self._starting
        if newest and self.chaos.strikes_operation("zombies"):
            self._make_zombie(coordinator)
            steps = random.randint(1, _SLEEP_STEPS)
        elif random.random() < _NESTED_RATE:
            steps = random.randint(1, _NESTED_STEPS)
        else:
            return
        self.schedule.run(steps, lambda: self._finished, _ACCESS_S_MAX)

    def _before_step(self) -> None:
        self._strike()
        newest = self._coordinators[-1] if self._coordinators else None
        if newest is not None and not (self._starting or newest.gone):
            self._user.perhaps_ask(newest)
            self._user.perhaps_delete(self.disks, self.storage_url)

    # Faults.

    def _strike(self) -> None:
        if not self.chaos.is_due():
            return
        kind = self.chaos.strike(
            (
                *(
                    "worker_crashes",
                    "user_errors",
                    "hangs",
                    "clock_jumps",
                    "full_disks",
                    "lost_connections",
                ),
                *self._on_coordinator(),
            )
        )
        if kind is not None:
            self.schedule.note("fault", kind)
            getattr(self, f"_strike_{kind}")()

    def _on_coordinator(self) -> tuple[str, ...]:
        newest = self._coordinators[-1]
        if self._starting or newest.gone:
            return ()
        if newest.busy or self._sleep_in_storage:
            return ("coordinator_crashes",)
        return ("coordinator_crashes", "zombies")

    def _strike_worker_crashes(self) -> None:
        workers = [w for c in self._coordinators for w in c.cluster.workers if not w.gone]
        if workers:
            self.schedule.random.choice(workers).vanish()

    def _strike_user_errors(self) -> None:
        workers = [w for w in self._coordinators[-1].cluster.workers if not w.gone]
        if workers:
            self.schedule.random.choice(workers).raise_in_user_code()

    def _strike_hangs(self) -> None:
        workers = [w for w in self._coordinators[-1].cluster.workers if not w.gone]
        if workers:
            for_ever = self.schedule.random.random() < 0.5
            self.schedule.random.choice(workers).hang(None if for_ever else _HANG_STEPS)

    def _strike_lost_connections(self) -> None:
        workers = [w for w in self._coordinators[-1].cluster.workers if w.heard and not w.gone]
        if workers:
            self.schedule.random.choice(workers).lose_connection()

    def _strike_full_disks(self) -> None:
        disk = self.disks[self.storage_url]
        disk.bytes_max = disk.bytes + self.schedule.random.choice(_ROOM_BYTES)
        self.schedule.later(_FULL_STEPS, lambda: setattr(disk, "bytes_max", None))

    def _strike_clock_jumps(self) -> None:
        self.schedule.set_clock_wrong()

    def _strike_coordinator_crashes(self) -> None:
        self._coordinators[-1].die()

    def _strike_zombies(self) -> None:
        zombie = self._coordinators[-1]
        zombie.asleep = True
        self._make_zombie(zombie)
        self.schedule.later(_SLEEP_STEPS, lambda: self._wake(zombie))

    def _wake(self, zombie: SimulatedCoordinator) -> None:
        self.schedule.note(zombie.name, "goes on, as a zombie")
        zombie.wake()

    def _make_zombie(self, coordinator: SimulatedCoordinator) -> None:
        self.schedule.note(coordinator.name, "is taken for dead")
        self._replace_coordinator()
        self.schedule.later(_SLEEP_STEPS + _ZOMBIE_STEPS, coordinator.die)


def _nobody_looks(path: str) -> None:
    return None
