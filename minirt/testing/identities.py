"""Who owns the output of jobs that are only played: no other run of a test plays the same."""

from __future__ import annotations

from uuid import uuid4

from minirt.io.base import SinkIdentity

_RUN = uuid4().hex


def played(job: str, uid: str) -> SinkIdentity:
    """The identity of a sink, the same in this process and in no other.

    Systems know transactions by it, and a server may be tested by two runs at once or in turn.
    """
    return SinkIdentity(f"{job} of {_RUN}", uid)
