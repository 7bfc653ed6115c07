"""What modes without options have in common."""

from __future__ import annotations

from typing import ClassVar

from minirt.errors import ConfigurationError


class TakesNoOptions:
    """A mode that can only be what its name says.

    Raises ConfigurationError when it is given options, as of a mode that has some.
    """

    name: ClassVar[str]

    def __init__(self, **options: object) -> None:
        if options:
            raise ConfigurationError(
                f"checkpoint mode {type(self).name!r} has no {', '.join(sorted(options))}: whether and "
                "when barriers overtake is fixed in it; AlignedWithTimeout(timeout=..., switch_below=...) "
                "lets you choose"
            )
