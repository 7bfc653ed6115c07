"""What the client says of its connections, without what it says again and again during an outage."""

from __future__ import annotations

import logging
import re

EVERY_S = 30.0
"""How often a message is let through, and then it says how many were left out."""

_KEPT_MAX = 1000
_OF_ONE_TRY = re.compile(r"\[minirt#\w+-\d+\]|\(after \d+ms[^)]*\)")
"""Which client it is, and how long its try took."""


class Repeats(logging.Filter):
    """Lets a message through that no client has given for a while.

    A client tries to connect several times a second, each time with a message, and a worker has several.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, tuple[float, int]] = {}
        """When a message was let through, and how often it came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        alike = _OF_ONE_TRY.sub("", text)
        at, left_out = self._told.get(alike, (-EVERY_S, 0))
        if 0 <= record.created - at < EVERY_S:
            self._told[alike] = (at, left_out + 1)
            return False
        if len(self._told) >= _KEPT_MAX:
            self._told.clear()
        self._told[alike] = (record.created, 0)
        if left_out:
            record.msg, record.args = f"{text} ({left_out} more were left out)", ()
        return True
