"""The URL of a control port, and where its token comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from minirt import ConfigurationError, Options
from minirt.operations.access import (
    ControlUrl,
    certificate_of,
    is_url,
    token_for_asking,
    token_given,
    token_of_program,
)

DIGITS = "0123456789abcdef" * 4
TOKEN = "t" * 32


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"minirt://10.0.0.1:7071#{DIGITS}", ("10.0.0.1", 7071)),
        (f"minirt://host.example:1#{DIGITS}", ("host.example", 1)),
        (f"minirt://[fd00::1]:7071#{DIGITS}", ("fd00::1", 7071)),
    ],
)
def test_a_url_is_read_as_it_is_written(text: str, address: tuple[str, int]) -> None:
    url = ControlUrl.parse(text)
    assert (url.address, url.fingerprint.digits, str(url)) == (address, DIGITS, text)
    assert url.place == text.partition("#")[0]
    assert is_url(text)
    assert not is_url("s3://bucket")
    assert not is_url("minirt")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("minirt://10.0.0.1:7071", "must end in # and the fingerprint"),
        ("minirt://10.0.0.1:7071#", "must end in # and the fingerprint"),
        (f"minirt://10.0.0.1:7071#{DIGITS[:-1]}", "must end in # and the fingerprint"),
        (f"minirt://10.0.0.1:7071#{DIGITS[:-1]}x", "must end in # and the fingerprint"),
        (f"minirt://10.0.0.1#{DIGITS}", "is HOST:PORT"),
        (f"minirt://#{DIGITS}", "is HOST:PORT"),
        (f"minirt://10.0.0.1:70000#{DIGITS}", "is HOST:PORT"),
    ],
)
def test_what_is_no_url_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        ControlUrl.parse(text)


def test_a_token_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="does not belong in a URL") as refused:
        ControlUrl.parse(f"minirt://secret@10.0.0.1:7071#{DIGITS}")
    assert "secret" not in str(refused.value)


def test_the_environment_gives_the_token_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert token_given({}) is None
    assert token_given({"MINIRT_TOKEN": TOKEN}) == TOKEN
    assert token_given({"MINIRT_TOKEN_FILE": str(file)}) == TOKEN


@pytest.mark.parametrize("token", ["", "short", "t" * 31, "t" * 1025, "t" * 16 + "\x00" + "t" * 16])
def test_a_token_that_could_be_guessed_is_refused_and_not_shown(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    for given in ({"MINIRT_TOKEN": token}, {"MINIRT_TOKEN_FILE": str(tmp_path / "token")}):
        with pytest.raises(ConfigurationError, match="a token of 32 to 1024 characters") as refused:
            token_given(given)
        assert not token or token not in str(refused.value)


def test_a_token_that_cannot_be_had_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"MINIRT_TOKEN_FILE: cannot read .*/none: No such"
    ):
        token_given({"MINIRT_TOKEN_FILE": str(tmp_path / "none")})
    with pytest.raises(ConfigurationError, match="not both"):
        token_given({"MINIRT_TOKEN": TOKEN, "MINIRT_TOKEN_FILE": "x"})
    for variable in ("MINIRT_TOKEN", "MINIRT_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError, match="give MINIRT_TOKEN, or MINIRT_TOKEN_FILE"):
        token_for_asking()


def test_a_program_has_one_token_for_all_its_jobs() -> None:
    assert token_of_program() == token_of_program()
    assert len(token_of_program()) == 64


def test_a_certificate_is_the_same_for_as_long_as_the_token_is() -> None:
    pytest.importorskip("cryptography")
    assert certificate_of(TOKEN) == certificate_of(TOKEN)
    assert certificate_of(TOKEN).fingerprint != certificate_of(TOKEN + "t").fingerprint
    assert TOKEN not in certificate_of(TOKEN).key


@pytest.mark.parametrize("control", ["", "7071", "host", "host:", ":7071", "host:70000", 7071])
def test_an_option_that_is_no_address_is_refused(control: str) -> None:
    with pytest.raises(ConfigurationError, match="control is HOST:PORT, not"):
        Options(control=control)
