"""The conformance kit for sinks: random lives of a job's output, with crashes, against a sink.

`minirt conformance sink package.module:factory` on the command line, `check_sink` in a test.

Theory of operation. A seed draws a *life* (`lives`): what writers write, which checkpoints complete and
which fail, what is committed, what the other side refuses for ever and the next start gives up, and where
the coordinator dies, gets no answer, or is replaced while it goes on. `world` plays it with the sink under
test: each call that the sink makes to staging and to its ledger can be the last one, or get no answer. What
readers see must at every moment be whole commits of completed checkpoints, each once, and in the end all of
them but for what was given up, which nobody ever sees. A life that fails is made smaller as long as it
fails (`shrink`).
"""

from __future__ import annotations

from minirt.testing.sinks.fake_system import FakeSystem, FakeSystemSink, FakeTrial
from minirt.testing.sinks.lives import Life, draw_life
from minirt.testing.sinks.shrink import shrink
from minirt.testing.sinks.trial import LostAnswerError, SinkTrial
from minirt.testing.sinks.world import Outcome, play

__all__ = [
    "FakeSystem",
    "FakeSystemSink",
    "FakeTrial",
    "LostAnswerError",
    "SinkTrial",
    "check_sink",
]


def check_sink(trial: SinkTrial, *, runs: int = 200, start: int = 0) -> None:
    """Put a sink to the test with the seeds from `start`.

    Raises AssertionError with the smallest counterexample that was found.
    """
    for seed in range(start, start + runs):
        outcome = play(draw_life(seed), trial)
        if outcome.wrong:
            raise AssertionError("\n".join(counterexample(shrink(outcome, trial))))


def counterexample(outcome: Outcome) -> list[str]:
    """A life that went wrong: how it went, and what is wrong."""
    life: Life = outcome.life
    return [*outcome.trace, "what is wrong:", *outcome.wrong, f"replay it: {life.token}"]
