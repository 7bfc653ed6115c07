"""What a comparison of output with expectation found."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many rows of the output are right, and some that are not.

    `examples` maps "lost", "duplicated" and "unexpected" to example findings: a finding has the
    `row`, the `expected_row` of the same key where that is another one, and how many `times`.
    """

    rows_expected: int
    rows_output: int
    lost: int
    """Rows that should be there, or be there more often."""
    duplicated: int
    """Rows beyond the number of times that they should be there."""
    unexpected: int
    """Rows that should not be there at all, or should have other values."""
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.lost == self.duplicated == self.unexpected == 0

    def to_json(self) -> str:
        """An object with the fields and `ok`; what JSON does not know is written as text."""
        return json.dumps({"ok": self.ok, **_plain(asdict(self))}, indent=2)

    def __str__(self) -> str:
        counts = {
            "expected": self.rows_expected,
            "output": self.rows_output,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unexpected": self.unexpected,
        }
        lines = [f"{name:<12}{count:>14,}" for name, count in counts.items()]
        for kind, findings in self.examples.items():
            lines += [f"  {kind}: {_finding(each)}" for each in findings]
        return "\n".join([*lines, "verdict     " + f"{'ok' if self.ok else 'DIFFERENT':>14}"])


def _finding(finding: dict[str, Any]) -> str:
    times = f" ({finding['times']} times)" if finding["times"] > 1 else ""
    instead = f" instead of {_line(finding['expected_row'])}" if "expected_row" in finding else ""
    return _line(finding["row"]) + instead + times


def _line(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())


def _plain(value: Any) -> Any:
    """The value in terms of JSON."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
