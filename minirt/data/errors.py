"""What can be wrong with data that is packed or unpacked."""

from __future__ import annotations

from minirt.errors import MinirtError


class UnsupportedRecordError(MinirtError):
    """A record or a state value has a type that cannot be sent or stored."""


class MalformedDataError(MinirtError):
    """Bytes are not what an encoder of minirt wrote."""
