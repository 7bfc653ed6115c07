"""The systems that minirt is compared with: one file each, one line each here."""

from __future__ import annotations

from collections.abc import Mapping

from minirt.errors import ConfigurationError
from minirt.laboratory.peer import Peer
from minirt.laboratory.peers.flink import Flink
from minirt.settings.catalogue import nearest

PEERS: Mapping[str, Peer] = {"flink": Flink()}


def find_peer(name: str) -> Peer:
    """Raises ConfigurationError, naming a peer that there is."""
    if name not in PEERS:
        raise ConfigurationError(f"there is no peer {name!r}{nearest(name, PEERS)}")
    return PEERS[name]
