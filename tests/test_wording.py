"""Messages name settings in the words of their reader, and leave the data of the user as it is."""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

import minirt as rt
from minirt import wording
from minirt.cli.run import run
from minirt.protocol.damage import fallback_to
from minirt.settings.catalogue import CATALOGUE

MINIRT = Path(inspect.getfile(wording)).parent


@pytest.fixture
def flags() -> Iterator[None]:
    with wording.in_flags():
        yield


IN_BOTH = {
    ("restore", "latest"): ('restore="latest"', "--restore latest"),
    ("restore", "a b"): ('restore="a b"', "--restore 'a b'"),
    ("restore", 7): ("restore=7", "--restore 7"),
    ("restore", None): ("restore=None", "no --restore"),
    ("allow_restore_fallback", True): ("allow_restore_fallback=True", "--allow-restore-fallback"),
    ("options.trace", True): ("trace=True", "--set options.trace=true"),
    ("options.on_signal", "stop"): ('on_signal="stop"', "--set options.on_signal=stop"),
}


@pytest.mark.parametrize(("key", "value"), IN_BOTH)
def test_a_program_reads_arguments(key: str, value: object) -> None:
    assert wording.given(key, value) == IN_BOTH[key, value][0]


@pytest.mark.usefixtures("flags")
@pytest.mark.parametrize(("key", "value"), IN_BOTH)
def test_the_command_line_reads_flags(key: str, value: object) -> None:
    assert wording.given(key, value) == IN_BOTH[key, value][1]


def test_names_and_calls_in_both_words() -> None:
    assert wording.named("limits.slice_s") == "slice_s"
    assert wording.named("checkpointing") == "checkpointing"
    assert wording.given_in_call("options.allow_pickle", True) == "Options(allow_pickle=True)"
    with wording.in_flags():
        assert wording.named("limits.slice_s") == "limits.slice_s"
        assert wording.named("checkpointing") == "--storage"
        pickles = wording.given_in_call("options.allow_pickle", True)
    assert pickles == "--set options.allow_pickle=true"
    assert not wording.uses_flags()


def asked() -> Iterator[tuple[str, str]]:
    """Each setting that a message of minirt names, with the module that does."""
    for path in sorted(MINIRT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="named" | "given" | "given_in_call"),
                    args=[ast.Constant(value=str(key)), *_],
                ):
                    yield key, str(path.relative_to(MINIRT))


def test_every_setting_that_a_message_names_exists() -> None:
    arguments = inspect.signature(rt.Environment.execute).parameters
    known = {*CATALOGUE, *wording.FLAGS, *arguments}
    found = list(asked())
    assert len(found) > 40
    assert [one for one in found if one[0] not in known] == []


def test_every_flag_is_one_of_minirt_run() -> None:
    of_run = {"--" + name.replace("_", "-") for name in inspect.signature(run).parameters}
    assert set(wording.FLAGS.values()) <= of_run


WORDS = (
    *(
        "restore",
        "mode",
        "trace",
        "timeout",
        "heartbeat_timeout",
        "latest",
        "True",
        "7",
        "Options(",
    ),
    *(")", "=", '"', "/", "&", "?", " ", "needs checkpointing"),
)


@drawn(st.lists(st.sampled_from(WORDS)).map("".join))
def test_data_of_the_user_stands_in_messages_as_it_is(data: str) -> None:
    with wording.in_flags():
        words = shlex.split(fallback_to(data).partition(" or --restore ")[2])
    assert words == [data]
