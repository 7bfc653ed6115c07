"""What operators, partitionings, sources, sinks and checkpoint modes must keep to, as tests for pytest.

Inherit a contract. pytest has to be installed. The contract of modes, in
`minirt.testing.contracts.mode`, needs hypothesis too, and is imported from there.
"""

import pytest

_PARTS = ("operator", "partitioning", "source", "sink", "memory", "mode")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from minirt.testing.contracts.memory import (  # noqa: E402
    BEFORE,
    SinkMemoryContract,
    SourceMemoryContract,
)
from minirt.testing.contracts.operating import Advance, Event, Given, Result  # noqa: E402
from minirt.testing.contracts.operator import OperatorContract  # noqa: E402
from minirt.testing.contracts.partitioning import PartitioningContract  # noqa: E402
from minirt.testing.contracts.sink import JOB, OPERATOR, SinkContract, row  # noqa: E402
from minirt.testing.contracts.source import (  # noqa: E402
    SourceContract,
    positions,
    read_all,
)

__all__ = [
    "BEFORE",
    "JOB",
    "OPERATOR",
    "Advance",
    "Event",
    "Given",
    "OperatorContract",
    "PartitioningContract",
    "Result",
    "SinkContract",
    "SinkMemoryContract",
    "SourceContract",
    "SourceMemoryContract",
    "positions",
    "read_all",
    "row",
]
