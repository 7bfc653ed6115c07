"""Tests of kernels choose them for this process; others find what was chosen before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minirt.kernels import choice


@pytest.fixture(autouse=True)
def _before() -> Iterator[None]:
    before = choice.chosen()
    yield
    choice._chosen = before
