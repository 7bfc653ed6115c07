"""Workers draw random numbers of their own, whatever generator was seeded before they were forked."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import numpy as np
import pytest

from minirt.runtime.worker.template import seed_generators


def drawn_in_fork(draw: Any) -> bytes:
    """What a fork of this process draws, once it was seeded as a worker is."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            seed_generators()
            os.write(writing, repr(draw()).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        return file.read()


def test_forks_draw_other_numbers_from_numpy() -> None:
    np.random.seed(1)
    drawn = {drawn_in_fork(np.random.rand) for _ in range(4)}
    assert len(drawn) == 4
    assert b"" not in drawn


def test_so_they_do_from_torch_if_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[str] = []
    torch = types.ModuleType("torch")
    torch.seed = lambda: seeded.append("torch")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    seed_generators()
    assert seeded == ["torch"]


def test_nothing_is_loaded_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy.random", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    seed_generators()
    assert "torch" not in sys.modules
    assert "numpy.random" not in sys.modules
