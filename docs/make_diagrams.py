"""Writes the life of a checkpoint in a subtask into architecture.md, from the table in the code.

Run it after changing `LIFECYCLE`:  python docs/make_diagrams.py
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from blocks import update

from minirt.protocol.barrier_handler import LIFECYCLE

TARGET = Path(__file__).parent / "architecture.md"


def state_diagram() -> str:
    """The table as a Mermaid state diagram; events between the same states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for state, event, following in LIFECYCLE:
        arrows[state, following].append(event)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {LIFECYCLE[0][0]}"]
    for (state, following), events in arrows.items():
        lines.append(f"    {state} --> {following}: {'<br/>'.join(events)}")
    return "\n".join([*lines, "```"])


def state_table() -> str:
    rows = [f"| {state} | {event} | {following} |" for state, event, following in LIFECYCLE]
    return "\n".join(["| state | event | next state |", "|---|---|---|", *rows])


if __name__ == "__main__":
    sys.exit(update(TARGET, {"lifecycle": f"{state_diagram()}\n\n{state_table()}"}))
