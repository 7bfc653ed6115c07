"""The settings of one run of a job: the arguments of `Environment.execute` and `start`, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minirt.clusters import HostCluster
from minirt.config import Checkpointing, Options
from minirt.errors import ConfigurationError
from minirt.protocol.restarts import RestartStrategy
from minirt.protocol.restore_options import RestoreOptions
from minirt.wording import given, named

if TYPE_CHECKING:
    from minirt.runtime.coordinator.observer import JobObserver


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything that a run needs besides the job. Raises ConfigurationError for what cannot work."""

    checkpointing: Checkpointing | None = None
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    restart: RestartStrategy | None = None
    """None stands for the default, which depends on whether there are checkpoints."""
    options: Options = field(default_factory=Options)
    observer: JobObserver | None = None
    cluster: HostCluster | None = None
    """None: all workers run on this machine."""

    def __post_init__(self) -> None:
        if self.checkpointing is not None:
            _check_type("checkpointing", self.checkpointing, Checkpointing)
        _check_type("options", self.options, Options)
        if self.cluster is not None:
            _check_type("cluster", self.cluster, HostCluster)
        if self.restart is not None and not callable(getattr(self.restart, "start", None)):
            raise ConfigurationError(
                f"restart is a strategy such as Restart.fixed_delay(), not {self.restart!r}"
            )
        if self.checkpointing is None and self.options.on_signal == "stop":
            raise ConfigurationError(
                f"{given('options.on_signal', 'stop')} needs {named('checkpointing')}: without it "
                "a job can only be cancelled"
            )
        if self.checkpointing is None and self.restore.which is not None:
            raise ConfigurationError(
                f"{given('restore', self.restore.which)} needs {named('checkpointing')}: it says "
                "where checkpoints are"
            )


def _check_type(option: str, value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        means_storage = wanted is Checkpointing and isinstance(value, str)
        hint = f"; write Checkpointing({value!r})" if means_storage else ""
        raise ConfigurationError(f"{option}: expected {wanted.__name__}, got {value!r}{hint}")
