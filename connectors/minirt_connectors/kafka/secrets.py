"""Values of options that no message may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = ("password", "secret", "token", "jaas", "oauthbearer.config", ".pem", "user.info")
"""What the name of an option has in it whose value is a secret."""

_SHOWN = 1000


class Secrets:
    """The secrets among options."""

    def __init__(self, options: Mapping[str, Any], *more: str) -> None:
        found = [
            str(value) for name, value in options.items() if any(part in name for part in _NAMES)
        ]
        found += [text.partition(":")[2] for text in found]  # Of `user:password`, the password.
        self._texts = sorted({text for text in (*found, *more) if text}, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """The text in one line, without them."""
        text = " ".join(text.split())
        for secret in self._texts:
            text = text.replace(secret, "***")
        return text[:_SHOWN]
