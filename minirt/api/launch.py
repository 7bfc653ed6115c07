"""Tells environments that a launcher, such as `minirt run`, loads the file that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from minirt.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class _Launch:
    parallelism: int | None


_launch: ContextVar[_Launch | None] = ContextVar("minirt_launch", default=None)


@contextmanager
def loading(parallelism: int | None) -> Iterator[None]:
    """Within the block, environments run nothing, and have this parallelism if one is given."""
    token = _launch.set(_Launch(parallelism))
    try:
        yield
    finally:
        _launch.reset(token)


def parallelism_instead_of(default: int) -> int:
    """The parallelism that the launcher sets, if it sets one."""
    launch = _launch.get()
    return default if launch is None or launch.parallelism is None else launch.parallelism


def refuse_to_run() -> None:
    """Raise ConfigurationError while a launcher loads the file: it will run the job itself."""
    if _launch.get() is not None:
        raise ConfigurationError(
            "the file runs its job while it is loaded; put execute() and start() below "
            '`if __name__ == "__main__":`'
        )
