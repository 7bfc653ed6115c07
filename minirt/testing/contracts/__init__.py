"""What sources and sinks must keep to, as tests for pytest: inherit a contract and fill in its gaps.

pytest has to be installed.
"""

import pytest

pytest.register_assert_rewrite(f"{__name__}.source", f"{__name__}.sink")

from minirt.testing.contracts.sink import OPERATOR, SinkContract, row  # noqa: E402
from minirt.testing.contracts.source import (  # noqa: E402
    SourceContract,
    positions,
    read_all,
)

__all__ = ["OPERATOR", "SinkContract", "SourceContract", "positions", "read_all", "row"]
