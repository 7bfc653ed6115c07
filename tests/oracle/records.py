"""The values that travel: a header in the upper 32 bits, and below it who numbered the value and how.

    header 32 | copy 6 | lane 6 | sequence 20

A *lane* is a source split; its values are numbered without gaps. Where a job gives out a value more
than once, the copies are told apart by their copy number. Lane and copy are the *track* of a value:
on each track every sequence number must arrive once. All is one signed 64-bit integer, so a bit that
gets lost or a byte that is out of place shows in the header.
"""

from __future__ import annotations

HEADER = (0xABCDEAFC << 32) - (1 << 64)

SEQUENCE_BITS = 20
LANE_BITS = 6
COPIES_MAX = 64
LANES_MAX = 1 << LANE_BITS


def value_of(lane: int, sequence: int) -> int:
    """The value that a source gives out."""
    assert 0 <= lane < LANES_MAX
    assert 0 <= sequence < 1 << SEQUENCE_BITS
    return with_header(lane << SEQUENCE_BITS | sequence)


def with_header(number: int) -> int:
    """The value of a number."""
    return HEADER | number


def number_of(value: int) -> int:
    """The value without its header. Raises ValueError if that is damaged."""
    if value >> 32 != HEADER >> 32:
        raise ValueError(f"{value:#x} does not carry the header")
    return value & 0xFFFFFFFF


def checked(value: int) -> int:
    """What every operator does with a value: take it apart and put it together again."""
    return with_header(number_of(value))


def track_of(value: int) -> int:
    return number_of(value) >> SEQUENCE_BITS


def lane_of(value: int) -> int:
    return track_of(value) % LANES_MAX


def sequence_of(value: int) -> int:
    return number_of(value) & ((1 << SEQUENCE_BITS) - 1)


def copied(value: int, copy: int) -> int:
    """The same value on the track of a copy."""
    assert 0 <= copy < COPIES_MAX
    return with_header(number_of(value) | copy << (SEQUENCE_BITS + LANE_BITS))


def track(lane: int, copy: int) -> int:
    return copy << LANE_BITS | lane
