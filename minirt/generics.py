"""The type variables of what users name. Each is Any where nobody says: `Stream` is `Stream[Any]`."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar  # That of Python 3.11 has no default.

K = TypeVar("K", default=Any)
"""A key."""
L = TypeVar("L", default=Any)
"""A record of the left of two streams."""
R = TypeVar("R", default=Any)
"""A record of the right."""
T = TypeVar("T", default=Any)
"""A record, or a value of a state."""
U = TypeVar("U", default=Any)
"""What is made of it."""

K_co = TypeVar("K_co", covariant=True, default=Any)
K_contra = TypeVar("K_contra", contravariant=True, default=Any)
L_contra = TypeVar("L_contra", contravariant=True, default=Any)
R_contra = TypeVar("R_contra", contravariant=True, default=Any)
T_co = TypeVar("T_co", covariant=True, default=Any)
T_contra = TypeVar("T_contra", contravariant=True, default=Any)
U_co = TypeVar("U_co", covariant=True, default=Any)
