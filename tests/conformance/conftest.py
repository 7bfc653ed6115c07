"""Simulations log every injected fault; nobody reads that."""

from __future__ import annotations

from tests.simulation.conftest import quiet

__all__ = ["quiet"]
