"""A stored value is of the class that the script has now, also in the next start of the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import enum, pickle, sys
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import cloudpickle

from minirt import by_value, script_classes
from minirt.data.values import pack_value, unpack_value


class Level(enum.Enum):
    NEW, GOLD = 1, 2


class Sign(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Base:
    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None

    def word(self):
        return WORD


class Plain(Base):
    def __init__(self, n):
        self.n = n


@dataclass
class Account:
    level: Level
    tags: set = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Slotted:
    n: int
    sign: Sign = Sign.A | Sign.B


class Point(NamedTuple):
    x: int


Pair = namedtuple("Pair", "a b")


class Outer:
    class Inner(Base):
        n = 1

    class Level(enum.Enum):
        OTHER = 1


class Texts(dict):
    pass


WORD = sys.argv[2]


def local():
    @dataclass
    class OfFunction:
        n: int

    return OfFunction


Local = local()
VALUES = [
    Account(Level.GOLD, {1}), Plain(3), Slotted(4), Point(5), Pair(1, 2), Outer.Inner(), Outer.Level.OTHER,
    Texts(a=Level.NEW), Sign.A | Sign.B, {"a": [Plain(1)]}, Level.NEW, Local(1),
]
"""

STORES = (
    PROGRAM
    + """
if __name__ == "__main__":
    dumps = cloudpickle.dumps if sys.argv[3] == "before" else by_value.dumps
    Path(sys.argv[1]).write_bytes(pickle.dumps([dumps(value) for value in VALUES]))
"""
)
READS = (
    PROGRAM
    + """
def kinds(value):
    if isinstance(value, dict):
        return [type(value), *(kinds(each) for each in value.values())]
    return [type(value), *map(kinds, value)] if type(value) in (list, set) else type(value)


if __name__ == "__main__":
    script_classes.load_job(by_value.dumps([lambda: VALUES, Local]))
    wrong = []
    for wanted, data in zip(VALUES, pickle.loads(Path(sys.argv[1]).read_bytes())):
        found = script_classes.load_value(data)
        if found != wanted or kinds(found) != kinds(wanted):
            wrong.append((type(wanted), found))
        if isinstance(wanted, enum.Enum) and found is not wanted:
            wrong.append(found)
        if hasattr(found, "word") and found.word() != WORD:
            wrong.append(found.word())
    print(wrong)
"""
)
"""It also defines classes of nobody, and its methods say another word."""

WORKER = """
import pickle, sys
from minirt import script_classes
job, stored = pickle.loads(sys.stdin.buffer.read())
values, _ = script_classes.load_job(job)
found = [script_classes.load_value(data) for data in pickle.loads(stored)]
own = values()
wrong = [type(one) for one, other in zip(own, found) if type(one) is not type(other) or one != other]
print(wrong)
"""


def run(folder: Path, program: str, name: str, *arguments: str) -> str:
    file = folder / f"{name}.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, str(file), str(folder / "values"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("form", ["before", "now"], ids=["of earlier versions", "of this one"])
def test_values_are_of_the_classes_of_the_script(tmp_path: Path, form: str) -> None:
    run(tmp_path, STORES, "stores", "old words", form)
    assert run(tmp_path, READS, "reads", "new words") == "[]"


SENDS = (
    PROGRAM
    + """
if __name__ == "__main__":
    job = by_value.dumps([lambda: VALUES, Local])
    sys.stdout.buffer.write(pickle.dumps((job, Path(sys.argv[1]).read_bytes())))
"""
)


def test_so_they_are_in_a_worker_that_has_no_script(tmp_path: Path) -> None:
    run(tmp_path, STORES, "stores", "old words", "now")
    (tmp_path / "sends.py").write_text(SENDS)
    sent = subprocess.run(
        [sys.executable, str(tmp_path / "sends.py"), str(tmp_path / "values"), "new words"],
        capture_output=True,
        check=True,
    ).stdout
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=sent, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == "[]"


GONE = """
import pickle, sys
from pathlib import Path
from minirt import by_value, script_classes
from minirt.monitoring.logs import logger_of
import logging
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
script_classes.load_job(by_value.dumps(1))
for data in pickle.loads(Path(sys.argv[1]).read_bytes())[:2]:
    print(type(script_classes.load_value(data)).__name__)
"""


def test_a_class_that_is_gone_comes_as_it_was_and_that_is_said(tmp_path: Path) -> None:
    run(tmp_path, STORES, "stores", "old words", "now")
    told = run(tmp_path, GONE, "gone")
    assert "Account" in told
    assert "class __main__.Account, which the job's script does not define" in told


TWICE = """
import pickle, sys
from minirt import by_value, script_classes


def made(n):
    class One:
        number = n
    return One


first, second = made(1), made(2)
script_classes.load_job(by_value.dumps([first, second]))
for kind in (first, second):
    assert type(script_classes.load_value(by_value.dumps(kind()))) is kind
again = made(3)
script_classes.load_job(by_value.dumps(again))
assert type(script_classes.load_value(by_value.dumps(first()))) is again
print("ok")
"""


def test_classes_of_one_name_are_told_apart_as_long_as_the_program_runs(tmp_path: Path) -> None:
    """A function that makes a class makes several: of a later job the one that it brings counts."""
    assert run(tmp_path, TWICE, "twice") == "ok"
