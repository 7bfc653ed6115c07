"""How long the simulated campaigns among the tests are: `make soak` takes many times as many runs."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("CAMPAIGN_FACTOR", "1"))


def runs(count: int) -> int:
    """How many runs a campaign takes that needs so many to show something."""
    return FACTOR * count
