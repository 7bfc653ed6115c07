"""Protocols that a program registers with fsspec are known in its workers, in whichever way it did so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLASS = """
import os
import fsspec
from fsspec.implementations.local import LocalFileSystem

class Renamed(fsspec.AbstractFileSystem):
    protocol = "abfs"  # of a kind that knows conditional writes

    def __init__(self, **options):
        super().__init__(**options)
        self.local = LocalFileSystem()

    def ls(self, path, detail=True, **options):
        return self.local.ls(path, detail=detail)

    def info(self, path, **options):
        return self.local.info(path)

    def _open(self, path, mode="rb", **options):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, mode)

    def cp_file(self, path1, path2, **options):
        self.local.cp_file(path1, path2)

    def _rm(self, path):
        os.unlink(path)

    def pipe_file(self, path, value, mode="overwrite", **options):
        with self._open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)
"""
REGISTRATIONS = {
    "a class of a module": (
        CLASS,
        'import fsspec, renamed; fsspec.register_implementation("abfs", renamed.Renamed, True)',
    ),
    "a module at its import": (
        CLASS + 'fsspec.register_implementation("abfs", Renamed, True)',
        "import renamed",
    ),
    "a class of the script": (
        "",
        CLASS + 'fsspec.register_implementation("abfs", Renamed, True)',
    ),
    "a class of the script that was used before": (
        "",
        CLASS + 'fsspec.register_implementation("abfs", Renamed, True); fsspec.filesystem("abfs")',
    ),
    "the name of a class": (
        CLASS,
        'import fsspec; fsspec.register_implementation("abfs", "renamed.Renamed", True)',
    ),
}
JOB = """
import sys
import minirt as rt

base = sys.argv[1]
env = rt.Environment(parallelism=2)
numbers = env.source(rt.SequenceSource(10, splits=2), uid="numbers")
numbers.map(lambda n: {"n": n}).sink(rt.JsonlSink(f"abfs://{base}/out"), uid="out")
env.execute(checkpointing=rt.Checkpointing(f"abfs://{base}/checkpoints"))
"""


def run(folder: Path, module: str, script: str, job: str = JOB) -> subprocess.CompletedProcess[str]:
    (folder / "renamed.py").write_text(module)
    (folder / "job.py").write_text(script + job)
    return subprocess.run(
        [sys.executable, str(folder / "job.py"), str(folder / "data")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path.cwd(),
        check=False,
    )


@pytest.mark.parametrize("how", REGISTRATIONS)
def test_a_registered_protocol_is_known_to_workers(how: str, tmp_path: Path) -> None:
    ran = run(tmp_path, *REGISTRATIONS[how])
    assert ran.returncode == 0, ran.stderr
    files = (tmp_path / "data" / "out").glob("*.jsonl")
    assert sum(len(file.read_text().splitlines()) for file in files) == 10


def test_a_protocol_of_a_name_of_its_own_is_known_to_workers(tmp_path: Path) -> None:
    """Sinks write there; checkpoints need an atomic create, which minirt knows of some stores only."""
    script = CLASS + 'Renamed.protocol = "mine"; fsspec.register_implementation("mine", Renamed)'
    job = JOB.replace("abfs://{base}/out", "mine://{base}/out").replace("abfs://", "")
    ran = run(tmp_path, "", script, job)
    assert ran.returncode == 0, ran.stderr
    files = (tmp_path / "data" / "out").glob("*.jsonl")
    assert sum(len(file.read_text().splitlines()) for file in files) == 10


def test_a_class_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    lock = "import threading\nRenamed.lock = threading.Lock()\n"
    script = CLASS + lock + 'fsspec.register_implementation("abfs", Renamed, True)'
    ran = run(tmp_path, "", script)
    assert ran.returncode != 0
    why = "abfs:// is unknown in worker processes, since its class Renamed cannot be pickled"
    assert why in ran.stderr
    assert why in ran.stderr.splitlines()[-1], "the error of the job says it as well"
