"""The payload of benchmark records: texts that differ, and that no layout of records makes smaller.

The same arithmetic is in `benchmarks/peers/flink/Payload.java`, so that other systems carry the same texts.
"""

from __future__ import annotations

from functools import cache

PAYLOAD_CHARS = 100

_TEXTS = 1 << 16
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_SEED = 42
_MULTIPLIER, _INCREMENT, _BITS = 6364136223846793005, 1442695040888963407, 64
"""The factor of Knuth's linear congruential generator, whose six highest bits pick a character."""
_SCATTER = 40503
"""Odd: so that consecutive numbers begin at places that are far apart, and each place comes once."""


def payload(number: int) -> str:
    """The text of record `number`: 100 characters, the same for numbers that are 65,536 apart."""
    start = number * _SCATTER % _TEXTS
    return _characters()[start : start + PAYLOAD_CHARS]


@cache
def _characters() -> str:
    """Pseudorandom, of six bits each: all payloads are cut from them."""
    state, drawn = _SEED, []
    for _ in range(_TEXTS + PAYLOAD_CHARS):
        state = (state * _MULTIPLIER + _INCREMENT) % (1 << _BITS)
        drawn.append(_ALPHABET[state >> (_BITS - 6)])
    return "".join(drawn)
