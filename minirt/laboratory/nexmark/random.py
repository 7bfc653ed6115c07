"""Random numbers by event: each depends on the seed, the number of the event and the field alone.

A counter-based generator, so that any slice of the events can be made alone. It is splitmix64 (Steele,
Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), started elsewhere for each
field. All arithmetic is exact, so events are the same on every machine.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def words(seed: int, field: int, numbers: Ints) -> Words:
    """64 random bits for each number."""
    start = _mixed(np.array([seed], np.uint64) + np.array([field], np.uint64) * _GAMMA)
    return _mixed(numbers.astype(np.uint64) * _GAMMA + start)


def more_words(of: Words, count: int) -> npt.NDArray[np.uint64]:
    """`count` further words for each one, as a row: what splitmix64 gives with that word as seed."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    return _mixed(of[:, None] + steps)


def fractions(of: Words) -> npt.NDArray[np.float64]:
    """From 0 up to, but not including, 1."""
    return (of >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(of: Words, bound: int | Ints) -> Ints:
    """Whole numbers from 0 up to, but not including, the bound (below 2**53); 0 for a bound of 0."""
    return (fractions(of) * bound).astype(np.int64)


def prices(of: Words) -> Ints:
    """Cents from 100 to 100,000,000, so that their logarithms are spread evenly."""
    cents: npt.NDArray[np.float64] = _POWERS[0][of >> np.uint64(56)]
    for level, powers in enumerate(_POWERS[1:], start=1):
        cents = cents * powers[(of >> np.uint64(56 - 8 * level)) & np.uint64(0xFF)]
    return np.rint(cents * 100).astype(np.int64)


def _mixed(z: Words) -> Words:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _power_table(level: int) -> npt.NDArray[np.float64]:
    """10 ** (6 * digit / 256 ** level) of every digit.

    A product of these is the power of a fraction with such digits. Multiplying is exact by IEEE 754,
    whereas the last bit of `numpy.power` depends on the processor.
    """
    with localcontext(prec=30):
        exponents = [Decimal(6 * digit) / Decimal(256**level) for digit in range(256)]
        return np.array([float(Decimal(10) ** exponent) for exponent in exponents])


_POWERS = [_power_table(level) for level in (1, 2, 3, 4)]
