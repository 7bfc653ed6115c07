"""What `import minirt` and the command line load: what they do not need keeps nobody waiting."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import minirt

_LOADED = """
import contextlib, io, json, sys
sys.argv[1:] = {arguments!r}
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    {statement}
print(json.dumps(sorted(set(sys.modules) - set(sys.stdlib_module_names))))
"""

COMMAND_LINE = {
    *("minirt", "minirt.errors", "minirt.units", "minirt.standard_streams", "minirt.version"),
    "minirt.clusters",
    "minirt.wording",
    "minirt.secret_texts",
}
"""Of minirt itself, besides `minirt.cli`."""

pytestmark = pytest.mark.usefixtures("cold_starts")

HEAVY = {
    *("numpy", "pyarrow", "fsspec", "msgpack", "cloudpickle", "rich", "pandas", "psutil"),
    *("asyncio", "ssl", "http", "statistics", "multiprocessing", "sqlite3", "concurrent.futures"),
}
"""What takes long to import, or brings much along."""


def loaded(statement: str, *arguments: str) -> set[str]:
    """The modules that a fresh interpreter has after a statement, besides those of the standard library.

    Of the standard library it names those that are heavy.
    """
    code = _LOADED.format(statement=statement, arguments=list(arguments))
    code = code.replace("sys.stdlib_module_names)", f"sys.stdlib_module_names - {HEAVY!r})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(json.loads(done.stdout.splitlines()[-1]))
    return {name for name in found if not name.startswith("_") and "__editable__" not in name}


def in_standard_library(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def test_import_minirt_loads_nothing_else() -> None:
    found = {name for name in loaded("import minirt") if not in_standard_library(name)}
    assert found - loaded("pass") == {"minirt"}
    assert not loaded("import minirt") & HEAVY


def test_the_help_loads_the_command_line_alone() -> None:
    found = loaded("from minirt.cli import main; main()", "--help")
    of_minirt = {name for name in found if name.partition(".")[0] == "minirt"}
    others = {name for name in of_minirt if not name.startswith("minirt.cli")}
    assert others <= COMMAND_LINE
    assert not found & HEAVY
    assert "minirt.cli.run" in of_minirt


def test_a_name_loads_the_module_that_defines_it() -> None:
    found = loaded("from minirt import Checkpointing")
    assert "minirt.config" in found
    assert not any(name.startswith(("minirt.api", "minirt.operators")) for name in found)


def test_a_heavy_import_would_be_noticed() -> None:
    assert {"numpy", "asyncio"} <= loaded("import minirt, numpy, asyncio")


def test_processes_of_tests_keep_what_they_compile() -> None:
    code = "import sys; print(sys.dont_write_bytecode)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def declared() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The names by module: those that type checkers see, and those that are imported when asked for."""
    tree = ast.parse(Path(minirt.__file__).read_text(encoding="utf-8"))
    (checked,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and not node.orelse
    )
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    seen = {str(node.module): {alias.name for alias in node.names} for node in imports}
    return seen, {module: set(names.split()) for module, names in minirt._NAMES_OF.items()}


def test_what_type_checkers_see_is_what_there_is() -> None:
    seen, given = declared()
    assert seen == given
    assert set(minirt.__all__) == {name for names in given.values() for name in names}
    assert len(minirt.__all__) == len(set(minirt.__all__))


@pytest.mark.parametrize("name", minirt.__all__)
def test_each_name_is_that_of_its_module(name: str) -> None:
    assert name in dir(minirt)
    assert getattr(minirt, name) is getattr(import_module(minirt._MODULE_OF[name]), name)


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="module 'minirt' has no attribute 'Environmet'"):
        minirt.Environmet  # type: ignore[attr-defined] # noqa: B018
