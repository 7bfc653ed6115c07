"""What types tell users: mypy finds nothing in a right job, and every mistake of a wrong one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from mypy import api

import minirt as rt
from minirt.api.keywords import _OF_THE_JOB, RunOptions

TYPED = Path(__file__).parent / "typed"
_REFUSED = re.compile(r"# refused: (\S+)$")
_ERROR = re.compile(r"^(\S+?):(\d+): error: .* \[(\S+)\]$")


def marked(file: Path) -> set[tuple[str, int, str]]:
    """Where a file says that mypy refuses a line, and with which code."""
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    return {(file.name, n, found[1]) for n, line in lines if (found := _REFUSED.search(line))}


def test_mypy_refuses_what_is_wrong_and_nothing_else() -> None:
    files = sorted(TYPED.glob("*.py"))
    output, errors, _ = api.run(["--strict", *map(str, files)])
    assert not errors
    found = [_ERROR.match(line) for line in output.splitlines() if ": error: " in line]
    assert {(Path(one[1]).name, int(one[2]), one[3]) for one in found if one} == {
        mark for file in files for mark in marked(file)
    }
    assert None not in found


def test_classes_are_annotated_at_run_time_too() -> None:
    assert repr(rt.Stream[int]).endswith("Stream[int]")
    assert rt.ValueState[int](3).get.__self__ is not None


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (
            lambda s: s.map(str, paralelism=2),
            "unexpected keyword argument 'paralelism'; did you mean",
        ),
        (lambda s: s.key_by(str).reduce(min, ui="x"), "'ui'; did you mean 'uid'?"),
        (lambda s: s.sink(rt.DiscardSink(), colour=1), "there are uid, name, parallelism, chain"),
    ],
)
def test_a_keyword_that_no_operator_takes_is_refused(call, hint) -> None:  # type: ignore[no-untyped-def]
    stream = rt.Environment().source(rt.SequenceSource(1))
    with pytest.raises(TypeError, match=re.escape(hint)):
        call(stream)


@pytest.mark.parametrize("method", ["execute", "start"])
def test_a_keyword_that_no_run_takes_is_refused(method: str) -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource(1)).sink(rt.DiscardSink())
    with pytest.raises(TypeError, match="'restor'; did you mean 'restore'"):
        getattr(env, method)(restor="latest")


@pytest.mark.parametrize("method", ["execute", "start"])
@pytest.mark.parametrize(
    ("keyword", "home"),
    [
        ("parallelism", "Environment(parallelism=...)"),
        ("max_parallelism", "Environment(max_parallelism=...)"),
        ("mode", "checkpointing=Checkpointing(storage, mode=...)"),
        ("interval", "checkpointing=Checkpointing(storage, interval=...)"),
        ("workers", "options=Options(workers=...)"),
        ("slice_s", "options=Options(limits=Limits(slice_s=...))"),
    ],
)
def test_a_keyword_of_another_place_is_told_where_it_belongs(
    method: str, keyword: str, home: str
) -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource(1)).sink(rt.DiscardSink())
    with pytest.raises(TypeError, match=re.escape(home)):
        getattr(env, method)(**{keyword: 2})


def test_what_belongs_to_the_job_is_what_no_run_takes() -> None:
    taken = inspect.signature(rt.Environment).parameters
    assert {*taken} - {*RunOptions.__annotations__} == {*_OF_THE_JOB}
