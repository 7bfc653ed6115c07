"""Passwords and signatures of URLs, which no message, log or history of minirt may hold.

Whatever opens a URL registers what is secret in it. Every error of minirt and every message that it logs
leaves out the texts that this process has registered, wherever they come from: the URL itself, the id of a
split, the words of a client library. All other text stays as it is.
"""

from __future__ import annotations

from urllib.parse import unquote

HIDDEN = "***"
"""Stands in a message where a secret was."""

_ALONE_LENGTH_MIN = 6
"""A shorter password is left out together with its user only: alone it may be part of any word."""

_QUERIES_ARE_SECRET = frozenset({"http", "https"})
"""Protocols whose URLs carry signatures and tokens in their queries."""

_instead_of: dict[str, str] = {}
"""What stands in messages for each registered text."""


def register_url(url: str) -> None:
    """Leave the user, the password and the signed query of a URL out of all messages from now on."""
    for part in url.split("::"):
        scheme, separator, rest = part.partition("://")
        if not separator:
            continue
        user, at, _ = rest.partition("/")[0].rpartition("@")
        if at and ":" in user:
            _instead_of[f"{user}@"] = f"{HIDDEN}@"
            password = user.partition(":")[2]
            for text in (password, unquote(password)):
                if len(text) >= _ALONE_LENGTH_MIN:
                    _instead_of[text] = HIDDEN
        query = rest.partition("?")[2].partition("#")[0]
        if query and scheme.lower() in _QUERIES_ARE_SECRET:
            _instead_of[f"?{query}"] = f"?{HIDDEN}"


def without_secrets(text: str) -> str:
    """Return the text with every registered secret replaced by `***`."""
    # Longest first: a password alone may be part of a registered user and password.
    for secret in sorted(_instead_of, key=len, reverse=True):
        text = text.replace(secret, _instead_of[secret])
    return text
