"""Errors that come again are told in one line: a job that restarts may meet the same one very often."""

from __future__ import annotations

import re
from collections import OrderedDict

_ERRORS_MAX = 16
"""How many different errors are remembered, the newest."""

_VARIES = re.compile(r"0x[0-9a-fA-F]+|(?<!line )(?<!\d)\d+")
"""Numbers and addresses, but for those of lines in a traceback."""


class RepeatedErrors:
    """Knows how often each error came; two are the same if only numbers and addresses in them differ."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, str]] = OrderedDict()
        """How often an error came, and its newest text, by what is the same each time."""

    def in_short(self, text: str) -> str:
        """The text of an error the first time, later on one line of it."""
        known = _VARIES.sub("#", text)
        times, before = self._known.pop(known, (0, text))
        self._known[known] = (times + 1, text)
        if len(self._known) > _ERRORS_MAX:
            self._known.popitem(last=False)
        if not times:
            return text
        lines = text.splitlines() or [""]
        what = lines[0]
        if text != before and len(lines) > 1:
            what = f"{what}: {lines[-1]}"
        return f"the same error for the {_ordinal(times + 1)} time: {what}"


def _ordinal(number: int) -> str:
    """Two or more in words of a sentence: 2nd, 3rd, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"
