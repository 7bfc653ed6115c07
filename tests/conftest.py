"""What every test run shares: how hard hypothesis tries."""

import os

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.contracts")

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
