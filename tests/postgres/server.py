"""A PostgreSQL server of the tests: made, stopped, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.needs import lacks
from tests.servers import running

_START_TIMEOUT_S = 60
SETTINGS = {"wal_level": "logical", "max_connections": "50"}
"""Of the server of the tests; that of docker-compose.yml has the same."""


def programs() -> Path | None:
    """Where initdb and postgres are: `TEST_POSTGRES_BIN`, those of Debian, or those on the path."""
    named = os.environ.get("TEST_POSTGRES_BIN")
    known = [Path(named)] if named else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    on_path = shutil.which("initdb")
    known += [Path(on_path).parent] if on_path else []
    return next((folder for folder in reversed(known) if (folder / "initdb").exists()), None)


class Postgres:
    """One server on a free port of this machine; it refuses to run as root, so root runs it as nobody."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self._data = folder / "data"
        self._log = folder / "log"
        self._bin = bin
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            self._as = {"user": "nobody", "extra_groups": []}
            shutil.chown(folder, "nobody")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._server: subprocess.Popen[bytes] | None = None
        made = subprocess.run(
            [bin / "initdb", "-D", self._data, "-U", "minirt", "-A", "trust", "-E", "UTF8"],
            capture_output=True, text=True, timeout=120, cwd=folder, check=False, **self._as,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr}")
        self.start()

    @property
    def uri(self) -> str:
        return f"postgresql://minirt@127.0.0.1:{self.port}/postgres"

    def start(self, **settings_of_run: str) -> None:
        """Start it, with settings for this run beside its own, and wait until it answers."""
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            **SETTINGS,
            "log_statement": "mod",
            "log_replication_commands": "on",
            "log_line_prefix": "%m %p %x ",
            **settings_of_run,
        }
        settings = [part for item in options.items() for part in ("-c", "=".join(item))]
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, "-p", str(self.port), *settings],
                stderr=log, cwd=self._data.parent, **self._as,
            )  # fmt: skip
        end = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.uri, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends all sessions, SIGQUIT leaves the rest to its recovery."""
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(60)
            self._server = None

    def restart(self, how: signal.Signals, **settings_of_run: str) -> None:
        self.stop(how)
        self.start(**settings_of_run)

    def save(self, name: str) -> None:
        """Keep a copy of all that it stores, as a standby that is behind has it; it must be stopped."""
        shutil.copytree(self._data, self._data.parent / name)

    def go_back(self, name: str) -> None:
        """Take a copy for what it stores; it must be stopped."""
        shutil.rmtree(self._data)
        shutil.copytree(self._data.parent / name, self._data)
        if self._as:
            for folder, _, files in os.walk(self._data):
                for path in (folder, *(f"{folder}/{file}" for file in files)):
                    shutil.chown(path, "nobody")
        self._data.chmod(0o700)

    def keep(self, folder: Path) -> None:
        """Copy what it has said and its log of changes, which pg_waldump reads, into a folder."""
        folder.mkdir(exist_ok=True)
        shutil.copy(self._log, folder / "log")
        shutil.copytree(self._data / "pg_wal", folder / "pg_wal")

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.uri) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def ask_password(self, user: str, password: str) -> None:
        """Make a user who gets in by that password alone."""
        self.run(f"CREATE USER {user} PASSWORD '{password}'")
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.run("SELECT pg_reload_conf()")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a reader sees that is none of ours."""
        with psycopg.connect(self.uri) as connection:
            return connection.execute(query.encode()).fetchall()


@contextmanager
def a_server() -> Iterator[Postgres]:
    """A server for as long as it is needed; without the programs of one the test is skipped."""
    bin = programs()
    if bin is None:
        lacks(
            "postgres",
            "initdb is missing: .ci/install-services installs it, TEST_POSTGRES_BIN names it",
        )
    with running("postgres", lambda folder: Postgres(folder, bin)) as started:
        yield started
