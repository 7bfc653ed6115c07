"""Every command and every option, as the command line has them: mistyped, unread, on a narrow terminal.

What is asserted holds for commands and options to come as well: a wrong call is one line that begins with
`minirt: error: `, names things as the command line does, and shows no traceback.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

import minirt as rt
from minirt.cli import app, live_line, main
from minirt.cli.tables import fitting
from minirt.standard_streams import _outliving

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Called

JOB = """
import minirt as rt
env = rt.Environment("sums")
env.source(rt.SequenceSource(5), uid="numbers").sink(rt.JsonlSink("out"), uid="out")
"""
PYTHON = re.compile(
    r"Traceback|\w=(True|False|None)\b|(?<![.\w])[a-z]+(_[a-z]+)+=|Options\(|\brt\.|object at 0x|\bNone\b"
)
"""What no message of the command line may say."""


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))
FILES = {"JOB.PY[:ENV]": "job.py", "STORAGE": "stored", "ID": "latest", "N": "2", "MODE": "aligned"}


def arguments(command: Any) -> list[str]:
    """One of each that must be given."""
    return [
        FILES.get(param.metavar or "", "something")
        for param in command.params
        if param.param_type_name == "argument" and param.required
    ]


def options(name: tuple[str, ...]) -> list[Any]:
    return [param for param in COMMANDS[name].params if param.param_type_name == "option"]


EVERY_OPTION = [
    pytest.param(name, option, id=f"{' '.join(name)} {option.opts[-1]}")
    for name in COMMANDS
    for option in options(name)
    if option.opts[-1] != "--help"
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a job."""
    folder = tmp_path_factory.mktemp("stored")
    env = rt.Environment("sums")
    numbers = env.source(rt.SequenceSource(5), uid="numbers").key_by(lambda n: n % 2)
    numbers.reduce(max, uid="total").sink(rt.JsonlSink(folder / "out"), uid="out")
    env.execute(runner="inline", checkpointing=rt.Checkpointing(folder / "stored"))
    return folder / "stored"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Path) -> Iterator[Path]:
    """Where a job lies and has stored a checkpoint; no job runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    # On a busy machine, a job may prepare for so long that a line of progress comes before the error.
    monkeypatch.setattr(live_line, "_PIPE_EVERY_S", float("inf"))
    (tmp_path / "job.py").write_text(JOB)
    shutil.copytree(stored, tmp_path / "stored")
    yield tmp_path
    sys.modules.pop("__minirt_job__", None)


def assert_one_line(called: Called) -> None:
    assert called.status in (1, 2), called
    assert called.out == ""
    assert called.err.startswith("minirt: error: ")
    assert called.err.count("\n") == 1
    assert not PYTHON.search(called.err), called.err


@pytest.mark.parametrize(("name", "option"), EVERY_OPTION)
def test_a_mistyped_option_is_one_line_that_names_the_right_one(
    call: Call, folder: Path, name: tuple[str, ...], option: Any
) -> None:
    right = option.opts[-1]
    wrong = right[:-1] + ("x" if right[-1] != "x" else "y")
    called = call(*name, *arguments(COMMANDS[name]), wrong)
    assert_one_line(called)
    assert wrong in called.err
    assert right in called.err
    assert f"see `minirt {' '.join(name)} --help`" in called.err


@pytest.mark.parametrize(
    ("name", "option"), [each for each in EVERY_OPTION if not each.values[1].is_flag]
)
def test_an_option_without_its_value_is_one_line(
    call: Call, folder: Path, name: tuple[str, ...], option: Any
) -> None:
    called = call(*name, *arguments(COMMANDS[name]), option.opts[-1])
    assert_one_line(called)
    assert option.opts[-1] in called.err


@pytest.mark.parametrize(
    ("call_", "says"),
    [
        ("run job.py --storage s --mode alinged", "--mode"),
        ("run job.py --storage s --restore lastest", "lastest"),
        ("run job.py --storage stored", "--restore latest"),
        ("run job.py --storage stored --restore 77", "77"),
        ("run job.py --restore latest", "--storage"),
        ("run job.py --parallelism 0", "--parallelism"),
        ("run job.py --parallelism many", "--parallelism"),
        ("run job.py --name=", "--name"),
        ("run job.py --storage=", "--storage"),
        ("run job.py --restore=", "--restore"),
        ("run job.py --set nothing", "KEY=VALUE"),
        ("run job.py --set options.workers=3", "options.placement"),
        ("run job.py --set options.on_signal=stop", "--storage"),
        ("run job.py --set options.on_signal=halt", "options.on_signal"),
        ("run job.py --set options.debloat=fast", "options.debloat"),
        ("run job.py --set options.trace=true", "--storage"),
        ("checkpoints picture stored", "--set options.trace=true"),
        ("simulate job.py --html a.html", "--picture"),
        ("advise sums", "no jobs are running"),
        ("advise ./nowhere", "nowhere holds no checkpoints"),
        ("run job.py --set restart.attempts=3", "restart.strategy"),
        ("run job.py --storage s --allow-restore-fallback", "--allow-restore-fallback"),
        ("run job.py --storage s --allow-non-restored-state", "--allow-non-restored-state"),
        ("run job.py --storage s --ignore-in-flight-data-of 1", "--ignore-in-flight-data-of"),
        ("run job.py --storage stored --restore 1 --ignore-in-flight-data-of 1", "no in-flight"),
        ("run job.py --storage stored --restore 1 --ignore-in-flight-data-of 0", "above 0"),
        ("run job.py --storage s --give-up-output-of out@1", "--give-up-output-of"),
        ("run job.py --storage stored --restore 1 --give-up-output-of out", "out@7"),
        ("run job.py --storage stored --restore 1 --give-up-output-of in@1", "no sink has the uid"),
        ("run job.py --storage stored --restore latest", "--allow-non-restored-state"),
        ("run jop.py", "jop.py"),
        ("run job.py:emv", "env"),
        ("run job.py --config no.toml", "no.toml"),
        ("savepoint sums there", "no jobs are running"),
        ("stop sums", "no jobs are running"),
        ("cancel sums", "no jobs are running"),
        ("rescale sums 2", "no jobs are running"),
        ("rescale sums many", "N"),
        ("top", "no jobs are running"),
        ("top sums", "no jobs are running"),
        ("history nowhere", "nowhere holds no checkpoints"),
        ("checkpoints list nowhere", "nowhere holds no checkpoints"),
        ("checkpoints show stored 9", "no checkpoint 9"),
        ("checkpoints show stored last", "no checkpoint last"),
        ("checkpoints verify stored 9", "no checkpoint 9"),
        ("checkpoints diff stored 1 9", "no checkpoint 9"),
        ("checkpoints export stored --what keys", "--what"),
        ("checkpoints export stored --to out.xls", "out.xls"),
        ("checkpoints export stored --uid totals", "totals"),
        ("checkpoints export stored --uid total --name vals", "vals"),
        ("checkpoints delete stored 9 --yes", "no checkpoint 9"),
        ("checkpoints delete stored 1 --yes", "--force"),
        ("checkpoints delete stored 1 --force", "--yes"),
        ("checkpoints list stored --storage-option x", "KEY=VALUE"),
        ("conformance alinged", "alinged"),
        ("conformance aligned --seed 1 --runs 2", "--runs"),
        ("conformance aligned --replay nonsense", "nonsense"),
        ("bench --seconds 0", "--seconds"),
        ("demo --kills some", "--kills"),
    ],
)
def test_a_wrong_value_is_one_line_in_the_words_of_the_command_line(
    call: Call, folder: Path, call_: str, says: str
) -> None:
    called = call(*call_.split())
    assert_one_line(called)
    assert says in called.err


@pytest.mark.parametrize(
    "call_",
    [
        *("checkpoints list stored", "checkpoints show stored", "checkpoints verify stored"),
        *("checkpoints diff stored 1", "checkpoints export stored --uid total", "history stored"),
        *(
            "jobs",
            "run job.py --storage again",
            "run job.py --json",
            "conformance aligned --runs 2",
        ),
        "--help",
    ],
)
def test_a_standard_output_that_nobody_reads_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call_: str
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setattr(sys, "stdout", _outliving(write_end, None))
    monkeypatch.setattr(sys, "argv", ["minirt", *call_.split()])
    with pytest.raises(SystemExit) as exited:
        main()
    monkeypatch.undo()
    os.close(write_end)
    assert exited.value.code == 0
    assert "error" not in capsys.readouterr().err.lower()


def test_a_full_disk_behind_standard_output_is_one_line_and_a_status(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        called = subprocess.run(
            [sys.executable, "-m", "minirt", "checkpoints", "list", "stored"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert called.returncode == 1
    assert called.stderr == "minirt: error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("width", [40, 80, 110, 160])
def test_a_table_fits_its_terminal_and_cuts_neither_numbers_nor_short_names(width: int) -> None:
    from rich.console import Console

    columns = ["operator", *(f"figure number {place}" for place in range(9)), "remark"]
    names = ["reduce-by-key", "a-name-that-is-longer-than-any-terminal-" * 4]
    cells = [[name, *(f"{n * 111_111:,}" for n in range(1, 10)), "as it was"] for name in names]
    numeric = [False, *[True] * 9, False]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in fitting("title", columns, cells, numeric, width):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    for number in cells[0][1:10]:
        assert text.count(number) == 2
    assert text.count("reduce-by-key") >= 1
    assert "…" not in text


@pytest.mark.parametrize("width", [80, 110, 200])
def test_a_name_is_broken_only_where_two_do_not_fit_side_by_side(width: int) -> None:
    from rich.console import Console

    names = ["orders-from-the-shop-database", "enrich-with-customer-history"]
    columns = ["uid", "chain", "parallelism", "holds", "name", "entries", "bytes"]
    cells = [
        [n, "aggregate > ParquetSink", "3", "splits", "orders_of_the_last_hour", "3", "9"]
        for n in names
    ]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in fitting(
        "title", columns, cells, [False] * 2 + [True, False, False, True, True], width
    ):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    tables = text.count("uid")
    assert text.count(names[0]) == text.count(names[1]) == tables
    assert text.count("orders_of_the_last_hour") == len(names)
