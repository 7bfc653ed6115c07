"""What real kills are dealt in: every checkpoint mode, and what else can be chosen beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from examples.lazy_mode import Lazy
from examples.paced_mode import Paced
from minirt.modes import MODES
from minirt.modes.epoch import Epoch
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.restarts import Scope

_EXACT = ("keyed", "numbered", "postponed", "reduced", "united", "connected", "stateless", "dealt")
_WITH_DUPLICATES = ("postponed", "united", "stateless", "sides")
"""Whose records do not depend on state: with duplicates it may differ from the oracle's."""
_TO_OTHERS = ("numbered",)
"""Where workers send to others that have seen what they do again."""


@dataclass(frozen=True)
class Setting:
    """A mode, and what else a job is run with."""

    mode: CheckpointMode
    cases: Sequence[str]
    max_concurrent: int = 1
    interval: str = "50ms"
    savepoints: bool = False
    """Whether several are asked for at once, again and again."""
    scope: Scope = "job"

    @property
    def may_repeat(self) -> bool:
        return not self.mode.exactly_once


def _setting(mode: CheckpointMode, **more: object) -> Setting:
    cases = _EXACT if mode.exactly_once else _WITH_DUPLICATES
    return Setting(mode, **{"cases": cases, **more})  # type: ignore[arg-type]


_PACED = Paced(every_bytes=512, log_bytes=1 << 16)
_OVERLAPPING = {"max_concurrent": 4, "interval": "10ms", "savepoints": True}

SETTINGS: dict[str, Setting] = {
    **{name: _setting(mode) for name, mode in MODES.items()},
    "aligned-overlapping": _setting(MODES["aligned"], **_OVERLAPPING),
    "at_least_once-overlapping": _setting(MODES["at_least_once"], **_OVERLAPPING),
    "epoch-groups": _setting(Epoch(group=3)),
    "uncoordinated-staggered": _setting(Uncoordinated(stagger="10ms")),
    "uncoordinated-subtask": _setting(MODES["uncoordinated"], scope="subtask"),
    "uncoordinated-replay": _setting(MODES["uncoordinated"], scope="replay", cases=_TO_OTHERS),
    "communication_induced-subtask": _setting(MODES["communication_induced"], scope="subtask"),
    "lazy": _setting(Lazy(every=2)),
    "lazy-subtask": _setting(Lazy(every=2), scope="subtask"),
    "paced": _setting(_PACED),
    "paced-subtask": _setting(_PACED, scope="subtask"),
}
"""By the name that commands give them."""
