"""The keywords that many methods take, each declared once."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TypedDict

from minirt.api.draft import Settings
from minirt.clusters import HostCluster
from minirt.config import Checkpointing, Limits, Options
from minirt.keywords import check_keywords
from minirt.protocol.restarts import RestartStrategy
from minirt.protocol.restore_options import RestoreOptions
from minirt.run_settings import RunSettings

if TYPE_CHECKING:
    from minirt.runtime.coordinator.observer import JobObserver


class OperatorOptions(TypedDict, total=False):
    """What every method takes that adds an operator."""

    uid: str | None
    """Owns the state of the operator over restarts; by default made from the name."""
    name: str | None
    """For people: in plans, figures and messages."""
    parallelism: int | None
    """How many subtasks it has; by default that of the environment."""
    chain: bool
    """False keeps it out of the chain of its input; True, the default, lets the planner decide."""


class RunOptions(TypedDict, total=False):
    """What `Environment.execute` and `start` take alike. None stands for the default."""

    checkpointing: Checkpointing | None
    """How checkpoints are taken and where they are kept; none are without it."""
    restore: str | int | None
    """ "latest" for the newest complete checkpoint of `checkpointing`, if there is any, or the id or path
    of one; "none" starts over where there are checkpoints already, which is refused otherwise."""
    restart: RestartStrategy | None
    """What happens after a failure, see `Restart`."""
    options: Options | None
    """Limits, intervals and the like."""
    allow_non_restored_state: bool
    """State in the checkpoint that belongs to no operator is dropped instead of refused."""
    allow_restore_fallback: bool
    """A damaged checkpoint gives way to the one before it."""
    ignore_in_flight_data_of: int | None
    """The id of the checkpoint that is to be restored without its in-flight records: they are lost, a
    last resort where their file is."""
    give_up_output_of: str | None
    """A sink's uid and the id of the restored checkpoint, as "out@7": what the checkpoint holds of the
    sink's output is lost instead of committed, a last resort where its commit can never succeed."""
    observer: JobObserver | None
    """Hears what happens."""
    cluster: HostCluster | None
    """Has the hosts on which workers run; without any they run on this machine."""


_OF_THE_JOB = ("name", "parallelism", "max_parallelism")


def _home_of(keyword: str) -> str | None:
    """Where a run gets what somebody has given to it by mistake."""
    if keyword in _OF_THE_JOB:
        return f"it is one of the job: Environment({keyword}=...)"
    homes = {
        "checkpointing=Checkpointing(storage, {}=...)": Checkpointing,
        "options=Options({}=...)": Options,
        "options=Options(limits=Limits({}=...))": Limits,
    }
    for home, kind in homes.items():
        if keyword in (field.name for field in fields(kind)):
            return f"write {home.format(keyword)}"
    return None


def operator_settings(options: OperatorOptions) -> Settings:
    """The options of one operator. Raises TypeError for a keyword that no operator takes."""
    check_keywords(options, OperatorOptions.__annotations__)
    return Settings(**options)


def run_settings(options: RunOptions, defaults: RunSettings) -> RunSettings:
    """The options of one run; `defaults` has what they leave open.

    Raises TypeError for a keyword that no run takes, ConfigurationError for what cannot work.
    """
    check_keywords(options, RunOptions.__annotations__, _home_of)
    checkpointing, restart = options.get("checkpointing"), options.get("restart")
    limits, cluster = options.get("options"), options.get("cluster")
    return RunSettings(
        defaults.checkpointing if checkpointing is None else checkpointing,
        RestoreOptions(
            options.get("restore"),
            options.get("allow_non_restored_state", False),
            options.get("allow_restore_fallback", False),
            options.get("ignore_in_flight_data_of"),
            options.get("give_up_output_of"),
        ),
        defaults.restart if restart is None else restart,
        defaults.options if limits is None else limits,
        options.get("observer"),
        defaults.cluster if cluster is None else cluster,
    )
