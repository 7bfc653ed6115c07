"""What users need to test jobs, checkpoint modes, sources and sinks of their own.

A deterministic simulator with crashes at every step, and contract suites to inherit from.
"""

from __future__ import annotations

from minirt.testing.faults import Faults
from minirt.testing.result import SimulationResult
from minirt.testing.simulator import simulate
from minirt.testing.sink import TransactionalSink
from minirt.testing.user import Requests

__all__ = ["Faults", "Requests", "SimulationResult", "TransactionalSink", "simulate"]
