"""Tests for jobs and checkpoint modes: a deterministic simulator with crashes at every step."""

from __future__ import annotations

from minirt.testing.faults import Faults
from minirt.testing.simulator import SimulationResult, simulate
from minirt.testing.sink import TransactionalSink

__all__ = ["Faults", "SimulationResult", "TransactionalSink", "simulate"]
