"""The jobs that come with minirt to be compared: one file each, one line each here."""

from __future__ import annotations

from collections.abc import Mapping

from minirt.errors import ConfigurationError
from minirt.laboratory.workload import Workload
from minirt.laboratory.workloads.aws_peak import AwsPeak
from minirt.laboratory.workloads.checkpointing_time import CheckpointingTime
from minirt.laboratory.workloads.joined import Joined
from minirt.laboratory.workloads.nexmark import Nexmark
from minirt.laboratory.workloads.skewed_join import SkewedJoin
from minirt.laboratory.workloads.throttled import Throttled
from minirt.laboratory.workloads.windowed import Windowed
from minirt.settings.catalogue import nearest

WORKLOADS: Mapping[str, type[Workload]] = {
    "aws-peak": AwsPeak,
    "checkpointing-time": CheckpointingTime,
    "joined": Joined,
    "nexmark": Nexmark,
    "skewed-join": SkewedJoin,
    "throttled": Throttled,
    "windowed": Windowed,
}


def find_workload(name: str) -> type[Workload]:
    """Raises ConfigurationError, naming those that there are."""
    if name not in WORKLOADS:
        raise ConfigurationError(f"there is no workload {name!r}{nearest(name, WORKLOADS)}")
    return WORKLOADS[name]
