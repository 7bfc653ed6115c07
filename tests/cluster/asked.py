"""A job on hosts, run by `minirt run`, and those who ask it by URL from outside of its program."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minirt.operations.access import ControlUrl, certificate_of
from tests.runtime.campaign import compare
from tests.runtime.jobs import CASES
from tests.runtime.processes import wait_until

COUNT = 3000
TOKEN = "a token of this test, long enough"
BEFORE, AFTERWARDS = 1, 2
"""The parallelism that the file states, and the one that is asked for."""
_WAIT_S = 120.0
_FILE = """
from pathlib import Path
import minirt as rt
from tests.runtime.campaign import write_files
from tests.runtime.jobs import CASES, build
{imports}
folder = Path({folder!r})
env = rt.Environment(
    "asked",
    parallelism={parallelism},
    checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval="300ms"),
    restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
    options=rt.Options(placement="slots", control={control!r}),
    cluster={cluster},
)
numbers = build(CASES["keyed"], env, {count}, per_second=300.0, let_go=folder / "let-go")
write_files(numbers, folder)
"""


class Asked:
    """The job, in `folder`. Its program listens at `host`; `prefix` has a command run where others are.

    `cluster` is the expression that makes its cluster.
    """

    def __init__(
        self,
        folder: Path,
        cluster: str,
        *,
        imports: str = "",
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        control = (host, free_port(host))
        self.file, self._folder, self._prefix = folder / "job.py", folder, prefix
        self.url = str(ControlUrl(control, certificate_of(TOKEN).fingerprint))
        self.file.write_text(
            _FILE.format(
                imports=imports,
                folder=str(folder),
                parallelism=BEFORE,
                control=f"{host}:{control[1]}",
                cluster=cluster,
                count=COUNT,
            )
        )

    def says(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What a command says elsewhere."""
        command = [*self._prefix, sys.executable, "-m", "minirt", *arguments]
        environment = {**os.environ, "MINIRT_TOKEN": TOKEN}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)

    def does(self, *arguments: str) -> None:
        """A command that must succeed."""
        said = self.says(*arguments)
        assert (said.returncode, said.stderr) == (0, ""), said

    def runs(self, parallelism: int) -> None:
        """Wait until it runs like that."""

        def reached() -> bool:
            said = self.says("top", self.url, "--json")
            if said.returncode:
                return False
            figures = json.loads(said.stdout)
            widths = [operator["parallelism"] for operator in figures["operators"]]
            return figures["status"] == "running" and max(widths, default=0) == parallelism

        wait_until(reached, f"the job runs at parallelism {parallelism}", _WAIT_S)

    def rescale(self) -> None:
        """Ask for a savepoint and for another parallelism, then let the job end."""
        try:
            self.runs(BEFORE)
            self.does("savepoint", self.url, str(self._folder / "taken"))
            assert (self._folder / "taken").is_dir()
            self.does("rescale", self.url, str(AFTERWARDS))
            self.runs(AFTERWARDS)
        finally:
            (self._folder / "let-go").touch()

    def rescale_while(self, runs: Callable[[], None]) -> None:
        """Likewise, of a program that the calling thread is."""
        with ThreadPoolExecutor(1) as others:
            asking = others.submit(self.rescale)
            runs()
            asking.result()
        self.has_each_record_once()

    def has_each_record_once(self) -> None:
        assert compare(CASES["keyed"], COUNT, BEFORE, self._folder) == (0, 0)


def free_port(host: str) -> int:
    with socket.socket() as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        return port
