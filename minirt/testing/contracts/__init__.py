"""What sources, sinks and checkpoint modes must keep to, as tests for pytest: inherit a contract.

pytest has to be installed. The contract of modes, in `minirt.testing.contracts.mode`, needs hypothesis
too, and is imported from there.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in ("source", "sink", "mode")))

from minirt.testing.contracts.sink import OPERATOR, SinkContract, row  # noqa: E402
from minirt.testing.contracts.source import (  # noqa: E402
    SourceContract,
    positions,
    read_all,
)

__all__ = ["OPERATOR", "SinkContract", "SourceContract", "positions", "read_all", "row"]
