"""What an operator keeps its records or keys for, which a checkpoint says.

Of what another use needs, some may have been let go: it would be missing in silence.
"""

from __future__ import annotations

from collections.abc import Mapping

from minirt.errors import ConfigurationError
from minirt.state.sections import Section
from minirt.state.stored import HELD_FOR


def held_for(use: str, *, some: bool) -> dict[str, Section]:
    """The section that says it, if there are any."""
    return {HELD_FOR: use.encode()} if some else {}


def check_use(sections: Mapping[str, bytes], use: str, label: str) -> None:
    """Raise ConfigurationError if a checkpoint holds something for another use.

    Checkpoints of earlier versions do not say.
    """
    stored = sections.get(HELD_FOR)
    if stored is not None and stored != use.encode():
        raise ConfigurationError(
            f"operator {label}: the checkpoint holds records for {stored.decode(errors='replace')}, and "
            f"some that {use} needs may be gone; give the operator a new uid, or the options that it had"
        )
