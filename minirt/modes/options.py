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
                f"checkpoint mode {type(self).name!r} has no {', '.join(sorted(options))}: when it "
                "overtakes, or that it never does, is fixed; AlignedWithTimeout(timeout=..., "
                "switch_below=...) is the mode that has a choice"
            )
