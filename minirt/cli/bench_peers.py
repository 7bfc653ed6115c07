"""What minirt and other systems made of the benchmarks of these names, in docs/performance.md.

Nothing of it is measured here. A test holds the figures against that page.
"""

from __future__ import annotations

from collections.abc import Mapping

MILLION_RECORDS_PER_S: Mapping[str, Mapping[str, str]] = {
    "keyed-sum-rows": {"minirt": "3.10", "bytewax": "0.570", "pyflink": "0.0166"},
    "keyed-sum-columns": {
        "minirt": "25.5",
        "flink": "11.0",
        "spark": "5.68",
        "pathway": "1.08",
    },
}
"""By case and system, minirt itself beside them; with `placement="slots"` and every update to the sink."""

CHECKPOINT_MS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("at the end", "0.1 ms"): {"minirt": "10.4", "flink": "24"},
    ("at the end", "1 ms"): {"minirt": "10.2", "flink": "26"},
}
"""Unaligned, by where the slow map is and how long a record takes there: `python -m benchmarks.modes`."""

MACHINE = "2 cores, in docs/performance.md"


def rows() -> list[tuple[str, str, int]]:
    """Case, system, records a second."""
    return [
        (case, system, round(float(text) * 1_000_000))
        for case, systems in MILLION_RECORDS_PER_S.items()
        for system, text in systems.items()
    ]


def checkpoint_rows() -> list[tuple[str, str, float]]:
    """Case, system, seconds of an unaligned checkpoint while all queues are full (median)."""
    return [
        (f"slow map {place}, {record} a record, unaligned", system, float(text) / 1000)
        for (place, record), systems in CHECKPOINT_MS.items()
        for system, text in systems.items()
    ]
