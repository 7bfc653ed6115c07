"""Why something ended, in a text of bounded size."""

from __future__ import annotations

CAUSE_TEXT_MAX = 2000


def shortened(text: str, most: int = CAUSE_TEXT_MAX) -> str:
    """At most about `most` characters. Tracebacks say what matters first and last."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"
