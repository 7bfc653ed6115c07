"""The shape of the code: layers, sizes and names, read from the sources without running them."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    path
    for folder in ("minirt", "connectors", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

# Lines that are neither blank, comment, docstring nor import. A bound on all lines is met by packing
# calls and by cutting classes in two; this one asks only that a file holds one thought.
MAX_CODE_LINES = 600
MAX_FUNCTION_LINES = 70

# What decides and does nothing knows neither the world nor the layers that act on it. Pure modules import
# pure modules and the standard library only, so what they reach through others is pure as well.
PURE = (
    "minirt.protocol",
    "minirt.modes",
    "minirt.errors",
    "minirt.units",
    "minirt.notebook",
    "minirt.wording",
    "minirt.secret_texts",
)
PURE_MUST_NOT_IMPORT = (
    "asyncio",
    "multiprocessing",
    "threading",
    "socket",
    "selectors",
    "time",
    "random",
    "os",
    "io",
    "pathlib",
    "logging",
    "subprocess",
)

# What each layer must not import, wherever in its files.
FORBIDDEN = {
    "minirt.graph": ("minirt.runtime", "minirt.storage", "minirt.state", "minirt.api"),
    "minirt.operators": ("minirt.runtime", "minirt.storage", "minirt.api"),
    "minirt.io": ("minirt.runtime", "minirt.api"),
    "minirt.data": ("minirt.runtime", "minirt.api"),
    "minirt.kernels": ("minirt.runtime", "minirt.api", "minirt.state", "minirt.operators"),
    "minirt.state": ("minirt.runtime", "minirt.api"),
    "minirt.storage": ("minirt.runtime", "minirt.api"),
}

# The rooms of the runtime, lowest first: a room imports only those that stand before it, so there is no
# cycle. docs/architecture.md shows the same order.
ROOMS = (
    "channels",
    "network",
    "control",
    "input",
    "subtask",
    "worker",
    "cluster",
    "coordinator",
    "program",
)
MAX_FILES_OF_A_ROOM = 16

# What a connector, as any package of a user, may rely on. Names of `minirt` itself are public too.
PUBLIC = (
    "minirt.io",
    "minirt.errors",
    "minirt.functions",
    "minirt.data.batch",
    "minirt.state.handles",
    "minirt.config",
    "minirt.units",
)

# Durations and times that are due go by the monotonic clock. These compare with dates of files, or write
# dates for people.
WALL_CLOCK = ("time.time", "time.time_ns")
MAY_READ_THE_WALL_CLOCK = (
    "minirt.clock",
    "minirt.storage.local_files",
    "minirt.storage.checkpoints",
)

STARTS_THREADS = ("threading.Thread", "threading.Timer", "Thread", "ThreadPoolExecutor")

BANNED_WORDS = {"manager", "helper", "helpers", "util", "utils", "impl"}
BANNED_FIRST_WORDS = {"base", "abstract"}
MODE_NAMES = {"aligned", "unaligned", "at_least_once", "at-least-once"}


@dataclass(frozen=True)
class Import:
    name: str
    """Dotted, down to what is imported: `from minirt import units` is `minirt.units`."""
    line: int
    lazy: bool
    """Within a function, or for the type checker only."""


def imports(tree: ast.AST, lazy: bool = False) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import():
                yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                yield from (
                    Import(f"{module}.{alias.name}", node.lineno, lazy) for alias in node.names
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from imports(node, lazy=True)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from imports(node, lazy=True)
            case _:
                yield from imports(node, lazy)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def layering_faults(module: str, tree: ast.AST, submodules: set[str]) -> list[str]:
    """What a module imports against the rules, one line each."""
    faults = []
    for found in imports(tree):
        top = found.name.split(".")[0]
        bad = found.name.startswith(".")
        if within(module, PURE):
            bad |= top in PURE_MUST_NOT_IMPORT
            bad |= top not in sys.stdlib_module_names and not within(found.name, PURE)
        for layer, forbidden in FORBIDDEN.items():
            bad |= within(module, (layer,)) and within(found.name, forbidden)
        if within(module, ("minirt.api",)):
            bad |= within(found.name, ("minirt.runtime",)) and not found.lazy
        if top == "minirt" and within(module, ("minirt_connectors",)):
            parts = found.name.split(".")
            of_minirt_itself = len(parts) <= 2 and parts[-1] not in submodules
            bad |= not of_minirt_itself and not within(found.name, PUBLIC)
        bad |= enters_higher_room(module, found.name)
        if bad:
            faults.append(f"{module}:{found.line} imports {found.name}")
    return faults


def room_of(name: str) -> int | None:
    """The place in ROOMS of what a module or an import names, behind all for what is in no room of
    the runtime; None outside of the runtime."""
    if not within(name, ("minirt.runtime",)):
        return None
    room = name.split(".")[2:3]
    return ROOMS.index(*room) if set(room) & set(ROOMS) else len(ROOMS)


def enters_higher_room(module: str, imported: str) -> bool:
    """Whether a module of the runtime imports from a room that stands above its own."""
    here, there = room_of(module), room_of(imported)
    return here is not None and there is not None and there > here


def code_lines(tree: ast.AST, text: str) -> int:
    """Count the lines that hold code: no blank line, comment, docstring or import."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    written = enumerate((line.strip() for line in text.splitlines()), 1)
    return sum(1 for number, line in written if line and line[0] != "#" and number not in left_out)


def size_faults(module: str, tree: ast.AST, text: str) -> list[str]:
    lines = code_lines(tree, text)
    faults = [f"{module} has {lines} lines of code"] if lines > MAX_CODE_LINES else []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                faults.append(f"{module}:{node.lineno} {node.name} has {length} lines")
    return faults


def assertion_faults(module: str, tree: ast.AST) -> list[str]:
    """`python -O` removes them: they may tell a type to the checker, and guard nothing."""
    if not within(module, ("minirt",)) or within(module, ("minirt.testing.contracts",)):
        return []  # Tests, and programs of their own.
    return [
        f"{module}:{node.lineno} asserts more than a type"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and not tells_a_type(node.test)
    ]


def tells_a_type(test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
    return False


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a module gives to something, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


@cache
def is_banned(identifier: str) -> bool:
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]
    of_class = identifier.lstrip("_")[:1].isupper() and not identifier.isupper()
    return bool(BANNED_WORDS & set(words)) or (of_class and words[0] in BANNED_FIRST_WORDS)


def name_faults(module: str, tree: ast.AST) -> list[str]:
    own = [(part, 1) for part in module.split(".")]
    found = [*own, *identifiers(tree)]
    return [f"{module}:{line} is called {name}" for name, line in found if is_banned(name)]


def mode_faults(module: str, tree: ast.AST) -> list[str]:
    """Checkpoint modes named where no `if` about them may be."""
    if not within(module, ("minirt.runtime",)):
        return []
    return [
        f"{module}:{node.lineno} mentions the mode {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in MODE_NAMES
    ]


def clock_faults(module: str, tree: ast.AST) -> list[str]:
    """The wall clock read where it may be set meanwhile: whoever needs it has a `minirt.clock.Clock`."""
    if not within(module, ("minirt",)) or module in MAY_READ_THE_WALL_CLOCK:
        return []
    read = [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and dotted(node) in WALL_CLOCK)
        or (isinstance(node, ast.ImportFrom) and node.module == "time" and _names_it(node))
    ]
    return [f"{module}:{line} reads the wall clock" for line in read]


def _names_it(node: ast.ImportFrom) -> bool:
    return any(f"time.{alias.name}" in WALL_CLOCK for alias in node.names)


def thread_faults(module: str, tree: ast.AST) -> list[str]:
    """Threads that could end unheard: all are started by `minirt.threads.start_thread`."""
    if not within(module, ("minirt",)) or module == "minirt.threads":
        return []
    return [
        f"{module}:{node.lineno} starts a thread by itself"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) in STARTS_THREADS
    ]


def dotted(node: ast.expr) -> str:
    """A name, or an attribute of what is called by a name, as it is written; "" for all else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
    return ""


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "connectors":
        parts.pop(0)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def submodules_of_minirt() -> set[str]:
    return {path.stem for path in (ROOT / "minirt").iterdir()}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_module_keeps_to_its_layer_size_and_names(path):
    text = path.read_text()
    tree = ast.parse(text)
    module = module_of(path)
    assert [
        *layering_faults(module, tree, submodules_of_minirt()),
        *size_faults(module, tree, text),
        *assertion_faults(module, tree),
        *name_faults(module, tree),
        *mode_faults(module, tree),
        *clock_faults(module, tree),
        *thread_faults(module, tree),
    ] == []


def test_the_rooms_of_the_runtime_are_those_that_the_documentation_shows():
    folders = {path.parent.name for path in (ROOT / "minirt/runtime").glob("*/__init__.py")}
    assert folders == set(ROOMS)
    for room in ROOMS:
        assert len(list((ROOT / "minirt/runtime" / room).glob("*.py"))) <= MAX_FILES_OF_A_ROOM
    shown = " <- ".join(ROOMS)
    assert shown in re.sub(" +", " ", (ROOT / "docs/architecture.md").read_text())


# The interpreter starts without installed packages (-S): neither pyarrow nor numpy is there to be imported.
IMPORT_WHAT_IS_PURE = """
import importlib, pathlib, sys

root, *pure = sys.argv[1:]
sys.path.insert(0, root)
for path in sorted(pathlib.Path(root, "minirt").rglob("*.py")):
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    if any(name == one or name.startswith(one + ".") for one in pure):
        importlib.import_module(name)
        print(name)
"""


def import_what_is_pure(root: Path) -> subprocess.CompletedProcess[str]:
    """Import all pure modules below `root` in a Python that has nothing installed."""
    command = [sys.executable, "-I", "-S", "-c", IMPORT_WHAT_IS_PURE, str(root), *PURE]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_decides_can_be_imported_where_nothing_is_installed():
    done = import_what_is_pure(ROOT)
    assert done.stderr == ""
    assert {"minirt.protocol.job", "minirt.modes.aligned"} <= {*done.stdout.split()}


@pytest.mark.parametrize(
    "planted", ["import pyarrow", "from minirt.data import batch", "import minirt.graph.job_graph"]
)
def test_an_impure_import_is_found_wherever_it_is_reached(tmp_path, planted):
    ignore = shutil.ignore_patterns("__pycache__", "runtime", "testing", "cli")
    shutil.copytree(ROOT / "minirt", tmp_path / "minirt", ignore=ignore)
    assert import_what_is_pure(tmp_path).returncode == 0
    with (tmp_path / "minirt/units.py").open("a") as units:
        units.write(f"\n{planted}\n")
    assert "ModuleNotFoundError" in import_what_is_pure(tmp_path).stderr


# The rules themselves: each has to find what it is there for.


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("minirt.protocol.barriers", "import time"),
        ("minirt.protocol.barriers", "import os.path"),
        ("minirt.modes.aligned", "def f():\n    from random import choice"),
        ("minirt.protocol", "from minirt import io"),
        ("minirt.modes.aligned", "from minirt.runtime.worker.worker import Worker"),
        ("minirt.protocol.barriers", "import minirt"),
        ("minirt.protocol.barriers", "from minirt.graph.execution import Link"),
        ("minirt.protocol.barriers", "from minirt.config import Limits"),
        ("minirt.protocol.manifest", "import msgpack"),
        ("minirt.protocol.restore", "if TYPE_CHECKING:\n    import pyarrow"),
        ("minirt.units", "import numpy as np"),
        ("minirt.errors", "from minirt.data.values import shown"),
        ("minirt.protocol.barriers", "from .watermarks import Valve"),
        ("minirt.graph.planner", "def f():\n    import minirt.state.timers"),
        ("minirt.io.files", "from minirt.runtime import execute"),
        ("minirt.data.wire", "from minirt import runtime"),
        ("minirt.state.keyed", "import minirt.runtime"),
        ("minirt.storage.manifest", "import minirt.runtime"),
        ("minirt.runtime.control.messages", "from minirt.runtime.subtask import assembly"),
        ("minirt.runtime.channels.output", "from minirt.runtime.input import in_flight"),
        ("minirt.runtime.worker.template", "from minirt.runtime import program"),
        ("minirt.runtime.worker.worker", "def f():\n    import minirt.runtime.coordinator.shell"),
        (
            "minirt.runtime.coordinator.shell",
            "if TYPE_CHECKING:\n    from minirt.runtime.program.job import Job",
        ),
        ("minirt.runtime.program.job", "import minirt.runtime"),
        ("minirt.api.environment", "from minirt.runtime.program.execute import execute_job"),
        ("minirt.api.environment", "if True:\n    import minirt.runtime.program.execute"),
        ("minirt_connectors.spark.source", "from minirt.runtime import execute"),
        ("minirt_connectors.spark.source", "from minirt import runtime"),
        ("minirt_connectors.spark.source", "from minirt.data.wire import encode"),
    ],
)
def test_an_import_against_the_layers_is_found(module, code):
    assert layering_faults(module, ast.parse(code), {"runtime", "errors"}) != []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("minirt.protocol.barriers", "from minirt.errors import ProtocolError"),
        ("minirt.protocol.barriers", "from minirt.protocol.ids import ChannelId"),
        ("minirt.modes", "from minirt.protocol import barriers\nimport dataclasses"),
        (
            "minirt.api.environment",
            "def f():\n    from minirt.runtime.program.execute import execute_job",
        ),
        (
            "minirt.api.stream",
            "if TYPE_CHECKING:\n    from minirt.runtime.program.execute import JobResult",
        ),
        ("minirt.runtime.worker.worker", "import time, socket, minirt.protocol.barriers"),
        ("minirt.runtime.worker.worker", "from minirt.runtime.worker import uploader"),
        ("minirt.runtime.cluster.local", "from minirt.runtime.worker.orders import deliver"),
        ("minirt_connectors.spark.source", "import minirt as rt\nfrom minirt import Source"),
        ("minirt_connectors.spark.source", "from minirt.data.batch import Rows\nimport pyspark"),
        ("minirt_connectors.spark.source", "from minirt import errors"),
    ],
)
def test_an_import_within_the_layers_passes(module, code):
    assert layering_faults(module, ast.parse(code), {"runtime", "errors"}) == []


def test_assertions_that_guard_something_are_found():
    code = "assert x is not None\nassert isinstance(x, int), 'an int'\nassert x > 3"
    assert assertion_faults("minirt.m", ast.parse(code)) == ["minirt.m:3 asserts more than a type"]


def test_long_files_and_functions_are_found():
    body = "\n    pass" * MAX_FUNCTION_LINES
    code = f"class C:\n  def f(self):{body}".replace("\n    ", "\n      ")
    assert size_faults("m", ast.parse(code), code) == ["m:2 f has 71 lines"]
    within_bounds = "def f():" + body[:-9]
    assert size_faults("m", ast.parse(within_bounds), within_bounds) == []
    long = "x = 1\n" * (MAX_CODE_LINES + 1)
    assert size_faults("m", ast.parse(long), long) == ["m has 601 lines of code"]


def test_only_lines_of_code_count():
    code = '"""A docstring\nof two lines."""\n\nimport os\nfrom a import (\n    b,\n)\n'
    code += "\n# Why.\nx = b(\n    os,\n)\n"
    assert code_lines(ast.parse(code), code) == 3


@pytest.mark.parametrize(
    "code",
    [
        "class CheckpointManager: ...",
        "class BaseSink: ...",
        "class _AbstractThing: ...",
        "class SinkImpl: ...",
        "class IOHelper: ...",
        "def parse_helper(): ...",
        "utils = 1",
        "self.helper = 1",
        "def f(manager): ...",
        "import fsspec as fs_utils",
    ],
)
def test_an_empty_name_is_found(code):
    assert name_faults("m", ast.parse(code)) != []


def test_the_names_of_modules_count():
    assert name_faults("minirt.runtime.utils", ast.parse("")) != []


@pytest.mark.parametrize(
    "code",
    ["class Baseline: ...", "base = 1", "from contextlib import contextmanager", "utility = 1"],
)
def test_a_telling_name_passes(code):
    assert name_faults("m", ast.parse(code)) == []


def test_a_mode_named_in_the_runtime_is_found():
    tree = ast.parse('if mode == "aligned": pass')
    assert mode_faults("minirt.runtime.worker.worker", tree) != []
    assert mode_faults("minirt.modes.aligned", tree) == []
    assert mode_faults("minirt.runtime.worker.worker", ast.parse('"the aligned mode"')) == []


@pytest.mark.parametrize(
    "code", ["import time\nnow = time.time()", "from time import time", "clock = time.time_ns"]
)
def test_a_reading_of_the_wall_clock_is_found(code):
    assert clock_faults("minirt.runtime.worker.worker", ast.parse(code)) != []
    assert clock_faults("minirt.clock", ast.parse(code)) == []


def test_a_reading_of_the_monotonic_clock_passes():
    code = "import time\nfrom time import perf_counter\nnow = time.monotonic()"
    assert clock_faults("minirt.runtime.worker.worker", ast.parse(code)) == []


def test_a_thread_that_could_end_unheard_is_found():
    tree = ast.parse("import threading\nthreading.Thread(target=print).start()")
    assert thread_faults("minirt.runtime.worker.worker", tree) != []
    assert thread_faults("minirt.threads", tree) == []
