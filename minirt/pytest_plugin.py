"""The plugin for pytest: the fixture `run_stream`, for tests of what a stream makes of records.

pytest finds it wherever minirt is installed. A test that takes the fixture is run several times: once
inline, then simulated with each of `--minirt-seeds` seeds, in batches that the seed cuts, with crashes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if (
    TYPE_CHECKING
):  # Every run of pytest imports this file: it loads minirt only where a test needs it.
    from minirt.api.stream import Stream
    from minirt.watermarks import Watermarks

DEFAULT_SEEDS = 4


@dataclass(frozen=True, slots=True)
class StreamRunner:
    """Runs a stream on lists of records. With a `seed` it is simulated with what that does to it."""

    seed: int | None = None

    def __call__(
        self,
        build: Callable[..., Stream[Any]],
        *inputs: Iterable[Any],
        parallelism: int = 1,
        watermarks: Watermarks | None = None,
        mode: str = "aligned",
    ) -> list[Any]:
        """The records of the stream that `build` makes of one stream for each of the inputs.

        At parallelism 1, the default, records of one input come in their order. `watermarks` hold for all
        inputs. Raises ConfigurationError for what cannot work, JobFailedError if the job fails,
        AssertionError with seed and trace if it does not end.
        """
        import minirt as rt
        from minirt.testing import TransactionalSink, simulate

        env = rt.Environment("tested", parallelism=parallelism)
        streams = [
            env.source(
                rt.CollectionSource(records, splits=parallelism),
                uid=f"input-{place}",
                watermarks=watermarks,
            )
            for place, records in enumerate(inputs)
        ]
        result = build(*streams)
        if self.seed is None:
            return result.collect()
        sink = TransactionalSink()
        result.sink(sink, uid="output", parallelism=1)
        checkpointing = rt.Checkpointing("simulated://", mode=mode, interval="20ms")
        simulate(env, seed=self.seed, checkpointing=checkpointing).check()
        return sink.rows


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("minirt").addoption(
        "--minirt-seeds",
        type=_number_of_seeds,
        default=DEFAULT_SEEDS,
        metavar="N",
        help="how many simulations a test with run_stream goes through; with 0 it is only run inline "
        f"(default: {DEFAULT_SEEDS})",
    )


def _number_of_seeds(text: str) -> int:
    """Refuses what would leave simulations out in silence."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, got {text!r}")
    return int(text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "run_stream" in metafunc.fixturenames:
        seeds: list[int | None] = [None, *range(metafunc.config.getoption("--minirt-seeds"))]
        names = ["inline" if seed is None else f"seed-{seed}" for seed in seeds]
        metafunc.parametrize("run_stream", seeds, ids=names, indirect=True)


@pytest.fixture
def run_stream(request: pytest.FixtureRequest) -> StreamRunner:
    """Runs a stream on lists: inline, then simulated; `run_stream(build, [1, 2, 3])` gives its records."""
    return StreamRunner(request.param)
