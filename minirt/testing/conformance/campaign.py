"""Many runs, in as many processes as one likes: the same seeds give the same tally."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

from minirt.testing.conformance.cases import Run
from minirt.testing.quiet import quiet

CHUNK_RUNS = 20
"""How many runs are done and reported together."""

RunSeed = Callable[[int], Run]


@dataclass
class Tally:
    """What a campaign has seen."""

    runs: int = 0
    crash_runs: int = 0
    """Runs in which the job was restarted."""
    restarts: int = 0
    rescales: int = 0
    checkpoints: int = 0
    failed_checkpoints: int = 0
    cuts: int = 0
    """Completed checkpoints that were looked into."""
    in_flight: int = 0
    """Captured records in these."""
    steps: int = 0
    lost: int = 0
    duplicated: int = 0
    """Records that came twice although the mode claims to be exactly once."""
    repeated: int = 0
    """Records that came twice as the mode may have it."""
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Run] = field(default_factory=list)

    def add(self, run: Run) -> None:
        result, verdict = run.result, run.verdict
        self.runs += 1
        self.crash_runs += bool(result.restarts)
        self.restarts += result.restarts
        self.rescales += result.rescales
        self.checkpoints += result.checkpoints_completed
        self.failed_checkpoints += result.checkpoints_failed
        self.cuts += run.cuts
        self.in_flight += run.in_flight
        self.steps += result.steps
        self.lost += verdict.lost
        if run.exactly_once:
            self.duplicated += verdict.duplicated
        else:
            self.repeated += verdict.duplicated
        self.faults.update(result.faults)
        if run.wrong:
            self.failures.append(run)

    def line(self) -> str:
        """All figures in one line."""
        kinds = " ".join(f"{kind}={count}" for kind, count in sorted(self.faults.items()))
        return (
            f"runs={self.runs} with_crashes={self.crash_runs} restarts={self.restarts} "
            f"rescales={self.rescales} {kinds} checkpoints={self.checkpoints} "
            f"failed_checkpoints={self.failed_checkpoints} cuts={self.cuts} "
            f"in_flight={self.in_flight} lost={self.lost} duplicated={self.duplicated} "
            f"failures={len(self.failures)}"
        )


def campaign(run_seed: RunSeed, seeds: Sequence[int], *, jobs: int = 1) -> Iterator[Tally]:
    """The tally so far, every few runs, in the order of the seeds.

    With several jobs, `run_seed` is pickled and called in as many processes.
    """
    tally = Tally()
    for runs in _in_order(run_seed, seeds, jobs):
        for run in runs:
            tally.add(run)
        yield tally


def _in_order(run_seed: RunSeed, seeds: Sequence[int], jobs: int) -> Iterator[list[Run]]:
    chunks = (seeds[i : i + CHUNK_RUNS] for i in range(0, len(seeds), CHUNK_RUNS))
    if jobs == 1:
        yield from (_run_chunk(run_seed, chunk) for chunk in chunks)
        return
    # Not forked: the caller may have threads.
    spawn = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_ignore_interrupts)
    under_way: deque[Future[list[Run]]] = deque()
    try:
        for chunk in chunks:
            under_way.append(workers.submit(_run_chunk, run_seed, chunk))
            if len(under_way) > 2 * jobs:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        workers.shutdown(cancel_futures=True)


def _run_chunk(run_seed: RunSeed, seeds: Sequence[int]) -> list[Run]:
    with quiet():
        return [run_seed(seed) for seed in seeds]


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
