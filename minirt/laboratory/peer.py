"""What a peer is: another system that runs the graph of a workload, measured by the same figures.

A peer is one file in `minirt/laboratory/peers` and one line in its registry.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from minirt.errors import ConfigurationError
from minirt.laboratory.matrix import SETTINGS_MAX, Setting
from minirt.laboratory.measured import Run
from minirt.laboratory.trial import RunRequest


class Peer(ABC):
    """A run of a peer is a process of its own, as one of minirt is. Its output is not verified."""

    name: str
    modes: frozenset[str]
    """The checkpoint modes that it has, by the names of minirt's."""
    workloads: frozenset[str]
    options: frozenset[str]
    """The options of minirt that it has, too, by their keys."""

    @abstractmethod
    def missing(self) -> str | None:
        """What has to be done before it can run, or None."""

    @abstractmethod
    def version(self) -> str:
        """That of the system which is installed."""

    @abstractmethod
    def run(self, request: RunRequest, closed: threading.Event) -> Run:
        """Run once, until its time is up or `closed` is set."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The settings of a comparison with those of its peers behind, and what there is to say about them."""

    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def beside(
    settings: Sequence[Setting], peers: Sequence[Peer], workload: str | None, killed: bool
) -> Beside:
    """Each setting in each peer that has its mode. Raises ConfigurationError for what a peer cannot run."""
    added: list[Setting] = []
    notes: list[str] = []
    for peer in peers:
        if workload not in peer.workloads:
            known = " or ".join(sorted(peer.workloads))
            raise ConfigurationError(
                f"--peers {peer.name} runs --workload {known}, and no other job"
            )
        if killed:
            raise ConfigurationError(
                f"--kill kills no worker of {peer.name}: leave out one of them"
            )
        own = [replace(one, system=peer.name) for one in settings if one.mode in peer.modes]
        unknown = sorted({key for one in own for key in one.of("option")} - peer.options)
        if unknown:
            raise ConfigurationError(f"--set {unknown[0]} has no effect on {peer.name}")
        if not own:
            modes = ", ".join(sorted({one.mode for one in settings}))
            raise ConfigurationError(f"--peers {peer.name} has no mode {modes}")
        if (missing := peer.missing()) is not None:
            raise ConfigurationError(missing)
        added += own
        for mode in dict.fromkeys(one.mode for one in settings if one.mode not in peer.modes):
            notes.append(f"{peer.name} has no mode {mode}.")
        notes.append(
            f"{peer.name} {peer.version()} runs the same graph with the same payloads, in one process and "
            "with its own queues, as it comes. Its output is not verified."
        )
    if len(settings) + len(added) > SETTINGS_MAX:
        count = len(settings) + len(added)
        raise ConfigurationError(
            f"with the peers that makes {count} settings, at most {SETTINGS_MAX} are compared at a time"
        )
    versions = {peer.name: peer.version() for peer in peers}
    return Beside((*settings, *added), tuple(notes), versions)
