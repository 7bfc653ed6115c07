"""Signatures and annotations of what users write, also where these name what only type checkers know.

From Python 3.14 on, annotations are evaluated when somebody asks for them, which fails with NameError where
a name is imported under `TYPE_CHECKING` alone. minirt asks, so it asks for what can be known.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    def signature_of(function: Any) -> inspect.Signature:
        """As `inspect.signature`. Raises TypeError or ValueError where there is none."""
        return inspect.signature(function, annotation_format=Format.FORWARDREF)

    def annotations_of(owner: Any) -> dict[str, Any]:
        """As `inspect.get_annotations`: of a class, only its own."""
        return get_annotations(owner, format=Format.FORWARDREF)

else:
    signature_of = inspect.signature
    annotations_of = inspect.get_annotations
