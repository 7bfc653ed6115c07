"""Random strings, many at a time: built as bytes in numpy, handed to Arrow without copying."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.laboratory.nexmark.random import Ints, Words, below, more_words, words

_SHORTEST = 3
_WORD_CHARACTERS = 4
"""How many characters are made of one random word."""

_CARD_GROUP = np.frombuffer(b"".join(b"%04d " % i for i in range(10_000)), np.uint8).reshape(-1, 5)
_CARD_LENGTH = 19

_TEXT_BYTES = 1 << 20


def strings(of: Words, limit: int, special: str = " ") -> pa.StringArray:
    """Strings of 3 to `limit` - 1 characters: letters, and the special one in 1 of 13 places.

    Spaces at the ends are cut off.
    """
    lengths = _SHORTEST + below(of, limit - _SHORTEST)
    characters = more_words(of, -(-limit // _WORD_CHARACTERS)).view(np.uint16)
    found = _from_bytes(_alphabet(special)[characters], lengths)
    return pc.ascii_trim_whitespace(found) if special == " " else found


def card_numbers(of: Words) -> pa.StringArray:
    """Four groups of four digits."""
    groups = below(more_words(of, 4).ravel(), 10_000).reshape(-1, 4)
    digits = _CARD_GROUP[groups].reshape(len(of), 4 * _CARD_GROUP.shape[1])
    return _from_bytes(digits, np.full(len(of), _CARD_LENGTH))


class Text:
    """A long run of random letters, of which slices of up to `longest` are taken to fill events up."""

    def __init__(self, seed: int, field: int, longest: int) -> None:
        characters = _TEXT_BYTES + longest
        drawn = words(seed, field, np.arange(-(-characters // _WORD_CHARACTERS)))
        self._letters = _alphabet("")[drawn.view(np.uint16)]

    def slices(self, of: Words, lengths: Ints) -> pa.StringArray:
        width = int(lengths.max(initial=1))
        # One item of this array is `width` letters; items overlap. So a slice is a single copy.
        windows = np.ndarray(
            (_TEXT_BYTES,), dtype=f"V{width}", buffer=self._letters.data, strides=(1,)
        )
        copied = windows[below(of, _TEXT_BYTES)].view(np.uint8).reshape(len(of), width)
        return _from_bytes(copied, lengths)


def joined(*parts: pa.StringArray | str) -> pa.StringArray:
    """The parts of each row, one after another."""
    return pc.binary_join_element_wise(*parts, "")


def string_bytes(column: pa.StringArray) -> Ints:
    lengths: Ints = pc.binary_length(column).to_numpy().astype(np.int64)
    return lengths


def _from_bytes(characters: npt.NDArray[np.uint8], lengths: Ints) -> pa.StringArray:
    """The first so many characters of each row."""
    width = characters.shape[1]
    small = np.min_scalar_type(width)
    used = np.arange(width, dtype=small) < lengths.astype(small)[:, None]
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = pa.py_buffer(offsets), pa.py_buffer(characters[used])
    return pa.StringArray.from_buffers(len(lengths), *buffers)


@cache
def _alphabet(special: str) -> npt.NDArray[np.uint8]:
    """The character that each value of 16 random bits stands for."""
    characters = (np.arange(1 << 16) % 26 + ord("a")).astype(np.uint8)
    if special:
        characters[: (1 << 16) // 13] = ord(special)
    return characters
