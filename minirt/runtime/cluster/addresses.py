"""Where the coordinator of a job listens, and where its processes have their sockets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from minirt.errors import ConfigurationError
from minirt.runtime.control.connection import MessageConnection
from minirt.runtime.control.entrance import Entrance
from minirt.runtime.network.sockets import Network, shown
from minirt.wording import given_in_call

_FOLDER_BYTES_MAX = 88
"""The path of a Unix socket has at most 103 bytes on macOS; the name of a socket takes up to 15."""


def entrance_of(
    network: Network, admit: Callable[[MessageConnection], None], port: int
) -> Entrance:
    """Raises ConfigurationError if it cannot listen there."""
    try:
        return Entrance(network, lambda sock: admit(MessageConnection(sock)), port)
    except OSError as error:
        where = network.folder if network.interface is None else shown((network.interface, port))
        raise ConfigurationError(f"the coordinator cannot listen at {where}: {error}") from error


def private_folder(for_sockets: bool) -> str:
    """A new folder that only this user can enter. Raises ConfigurationError if sockets cannot be there."""
    folder = tempfile.mkdtemp(prefix="minirt-")
    if for_sockets and len(os.fsencode(folder)) > _FOLDER_BYTES_MAX:
        os.rmdir(folder)
        raise ConfigurationError(
            f"the folder for temporary files has too long a path for sockets: {folder}; set TMPDIR "
            f"to a shorter one, or use {given_in_call('options.transport', 'tcp')}"
        )
    return folder
