"""Profiles of hypothesis: `HYPOTHESIS_PROFILE=nightly pytest` searches longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The fixtures that property tests use are classes and functions without state.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}

settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=100, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
