"""Errors that can travel between processes."""

from __future__ import annotations

import pickle
import traceback

from minirt.errors import MinirtError


def portable(error: BaseException) -> Exception:
    """The error itself if it survives a trip between processes, else its text."""
    if isinstance(error, MinirtError):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            return MinirtError(str(error))
    return MinirtError("".join(traceback.format_exception(error)).rstrip())
