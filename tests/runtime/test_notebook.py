"""A job in a notebook: functions of its cells, what workers print, what cells show, and an interrupt."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.docs.blocks import environment

pytest.importorskip("ipykernel", reason="needs a Jupyter kernel: pip install ipykernel nbclient")
nbformat = pytest.importorskip("nbformat")

CELLS = [
    """
import os
import minirt as rt

FACTOR = 3
class Scaled:
    def __init__(self, value): self.value = value * FACTOR

def scale(number):
    if number == 1: print("a worker says", number)
    return Scaled(number).value

env = rt.Environment("cells")
numbers = env.source(rt.SequenceSource(5), uid="numbers")
numbers.map(scale).preview(2)
""",
    """
out = rt.CollectSink()
numbers.map(scale).sink(out)
env.execute()
""",
    "sorted(out.rows)",
    "env",
    """
import time
with open("pids", "a") as file: file.write(str(os.getpid()))
slow = rt.Environment("slow")
numbers = slow.source(rt.SequenceSource.endless(), uid="numbers")
numbers.map(lambda n: time.sleep(0.01)).sink(rt.DiscardSink())
slow.execute()
""",
    "'the kernel goes on'",
]
RUNNER = """
import sys, threading, time, os, json
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

book = nbformat.read(sys.argv[1], 4)
client = NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True)

def interrupt():
    while not os.path.exists("pids"):
        time.sleep(0.05)
    time.sleep(2.0)
    os.kill(int(open("pids").read()), 2)

threading.Thread(target=interrupt, daemon=True).start()
client.execute()
nbformat.write(book, sys.argv[1])
"""


@pytest.mark.processes
def test_a_job_runs_from_cells_and_can_be_interrupted(tmp_path):
    kernels = tmp_path / "kernels/python3"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "test", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbformat.write(book, tmp_path / "book.ipynb")
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, "book.ipynb"],
        cwd=tmp_path,
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    preview, ran_, rows, env, interrupted, after = nbformat.read(tmp_path / "book.ipynb", 4).cells
    assert _result(preview)["text/plain"] == "[0, 3]"
    assert "finished" in _result(ran_)["text/html"]
    assert _streamed(ran_).count("a worker says 1") == 1
    [line] = [one.data["text/html"] for one in ran_.outputs if one.output_type == "display_data"]
    assert line.startswith("<small>finished, ")
    assert _result(rows)["text/plain"] == "[0, 3, 6, 9, 12]"
    assert "<svg" in _result(env)["text/html"]
    errors = [one.ename for one in interrupted.outputs if one.output_type == "error"]
    assert errors == ["KeyboardInterrupt"]
    assert _result(after)["text/plain"] == "'the kernel goes on'"


def _environment(folder):
    """The kernel does not capture what other processes print if it finds itself in a test of pytest."""
    ours = {key: value for key, value in environment().items() if key != "PYTEST_CURRENT_TEST"}
    return {**ours, "JUPYTER_PATH": str(folder), "IPYTHONDIR": str(folder / "ipy")}


def _result(cell):
    found = [one for one in cell.outputs if one.output_type == "execute_result"]
    assert len(found) == 1, cell.outputs
    return found[0].data


def _streamed(cell):
    return "".join(one.text for one in cell.outputs if one.output_type == "stream")
