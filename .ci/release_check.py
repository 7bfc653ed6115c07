#!/usr/bin/env python3
"""Checks what would be released: builds sdist and wheel, looks into both, and tries the wheel.

On each supported Python that this machine has, it makes an empty environment, installs the wheel with
nothing but its dependencies, and does there what the README tells a newcomer to do: the shortest job, and
the job that is killed. Then it makes a project with `minirt new`, and runs its test and its job. It says
which Pythons it did not see.

    python .ci/release_check.py [--python 3.12]... [--keep]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import blocks, sleeping_until_checkpoints  # noqa: E402

README = ROOT / "README.md"
TIMEOUT_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="only this version; can be repeated")
    parser.add_argument("--keep", action="store_true", help="leave sdist and wheel in dist/")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minirt-release-") as folder:
        sdist, wheel = build(Path(folder))
        faults = [*faults_in(wheel.name, names_in_wheel(wheel))]
        faults += faults_in(sdist.name, names_in_sdist(sdist))
        if faults:
            print("\n".join(faults), file=sys.stderr)
            return 1
        print(f"built {sdist.name} and {wheel.name}: licence and types are inside, tests are not")
        if given.keep:
            (ROOT / "dist").mkdir(exist_ok=True)
            for built in (sdist, wheel):
                shutil.copy(built, ROOT / "dist")
        outcomes = [tried(version, wheel) for version in given.python or supported()]
    for version, outcome in zip(given.python or supported(), outcomes, strict=True):
        print(f"Python {version}: {outcome}")
    seen = [outcome for outcome in outcomes if outcome != NOT_SEEN]
    return 0 if seen and all(outcome == WORKS for outcome in seen) else 1


WORKS, NOT_SEEN = "works", "not seen: it is not on this machine"


def supported() -> list[str]:
    """The versions that the package says it runs on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = (re.search(r":: (3\.\d+)$", line) for line in project["classifiers"])
    return [match[1] for match in found if match]


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made from it, in a copy of what the repository holds."""
    environment = folder / "build"
    run([sys.executable, "-m", "venv", environment])
    python = environment / "bin/python"
    run([python, *PIP, "install", "build"])
    run([python, "-m", "build", "--outdir", folder / "dist", ROOT])
    [sdist] = (folder / "dist").glob("*.tar.gz")
    [wheel] = (folder / "dist").glob("*.whl")
    return sdist, wheel


PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def names_in_wheel(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def names_in_sdist(sdist: Path) -> list[str]:
    """Without the folder that holds all."""
    with tarfile.open(sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def faults_in(archive: str, names: Iterable[str]) -> Iterator[str]:
    """What is missing in an archive, or is too much."""
    names = list(names)
    for wanted in (
        "LICENSE",
        "minirt/py.typed",
        "minirt_connectors/py.typed",
        "ui/page/index.html",
    ):
        if not any(name == wanted or name.endswith(f"/{wanted}") for name in names):
            yield f"{archive} lacks {wanted}"
    for name in names:
        parts = name.split("/")
        if "tests" in parts or parts[-1].startswith("test_") or "__pycache__" in parts:
            yield f"{archive} holds {name}"
        if archive.endswith(".whl") and not parts[0].startswith("minirt"):
            yield f"{archive} would install {name} beside the packages of minirt"


def tried(version: str, wheel: Path) -> str:
    """What became of the wheel on a version of Python."""
    python = interpreter(version)
    if python is None:
        return NOT_SEEN
    with tempfile.TemporaryDirectory(prefix=f"minirt-{version}-") as folder:
        try:
            try_in_empty_environment(python, wheel, Path(folder))
        except (subprocess.SubprocessError, Unexpected) as error:
            said = getattr(error, "stderr", None) or ""
            return f"FAILED: {error}\n{said}".rstrip()
    return WORKS


def interpreter(version: str) -> str | None:
    """A Python of this version that can make environments: on the path, of pyenv, or of uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    candidates = [f"python{version}", *map(str, found), *of_uv(version)]
    code = f"import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != {as_tuple(version)})"
    for candidate in candidates:
        path = shutil.which(candidate)
        if path and subprocess.run([path, "-c", code], capture_output=True).returncode == 0:
            return path
    return None


def as_tuple(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def of_uv(version: str) -> list[str]:
    """What uv has, or can get; most machines have no uv."""
    if shutil.which("uv") is None:
        return []
    subprocess.run(["uv", "python", "install", version], capture_output=True, timeout=TIMEOUT_S)
    found = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True)
    return found.stdout.split()[:1]


class Unexpected(Exception):
    """A command did something else than the README says."""


def try_in_empty_environment(python: str, wheel: Path, folder: Path) -> None:
    """Raises SubprocessError or Unexpected where anything fails."""
    print(f"{python}: installs the wheel in an empty environment ...", flush=True)
    run([python, "-m", "venv", folder / "env"])
    here = folder / "env/bin/python"
    run([here, *PIP, "install", wheel])
    work = folder / "work"
    work.mkdir()
    environ = clean_environment(folder / "env/bin")
    shortest, first_job = blocks(README, "python")[:2]
    (work / "words.py").write_text(shortest)
    printed = run([here, "words.py"], work, environ).split("\n")
    if "('to', 2)" not in printed:
        raise Unexpected(f"the shortest job of the README printed {printed}")
    (work / "first_job.py").write_text(first_job)
    commands = sleeping_until_checkpoints("totals") + blocks(README, "bash")[0]
    printed = run(["bash", "-c", commands], work, environ).split()
    if printed[-1] != "600":
        raise Unexpected(f"the job that was killed has {printed[-1]} results of 600")
    run(["minirt", "--version"], work, environ)
    run(["minirt", "new", "project"], work, environ)
    run([here, *PIP, "install", "pytest"])
    run([here, "-m", "pytest", "-q"], work / "project", environ)
    shutil.copy(wheel, work / "project")  # As its README says, for the container.
    wanted = ["--no-deps", "--find-links", ".", "--requirement", "requirements.txt"]
    run([here, *PIP, "download", "--dest", folder / "found", *wanted], work / "project")
    run(["minirt", "run", "job.py", "--config", "minirt.toml"], work / "project", environ)


def clean_environment(programs: Path) -> dict[str, str]:
    """The environment of a new user: nothing leads to this repository, and PATH begins with the new one."""
    kept = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR", "USER") if key in os.environ}
    return {**kept, "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"}


def run(
    command: Iterable[str | Path], folder: Path | None = None, environ: dict[str, str] | None = None
) -> str:
    """What a command printed. Raises SubprocessError if it failed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}".strip()
        raise Unexpected(f"`{' '.join(words[:4])}` ended with status {done.returncode}:\n{said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
