"""Simulations log every injected fault; nobody reads that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minirt.testing.conformance.campaign import quiet


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield
