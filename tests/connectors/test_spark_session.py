"""The check for Java, and what a local session is set to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minirt.errors import ConfigurationError
from minirt_connectors.spark import local_session, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path


def fake_java(home: Path, script: str) -> None:
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


def answer(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize("version", ["17.0.15", "17", "21-ea", "25.0.1"])
def test_java_from_17_on_is_accepted(java_home: Path, version: str) -> None:
    fake_java(java_home, answer(version))
    require_java()


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (answer("1.8.0_402"), "is Java 8:"),
        (answer("11.0.2"), "is Java 11:"),
        ("echo what", "of an unknown version"),
        ("exit 1", "does not run"),
    ],
)
def test_other_java_is_refused_in_one_line_that_says_how_to_install_one(
    java_home: Path, script: str, found: str
) -> None:
    fake_java(java_home, script)
    with pytest.raises(ConfigurationError) as refused:
        require_java()
    message = str(refused.value)
    assert found in message
    assert "apt-get install openjdk-17-jre-headless" in message
    assert "\n" not in message


def test_missing_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="needs Java 17 or newer and `java` does not run"):
        local_session("none")


def test_missing_pyspark_is_refused(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(java_home, answer("17"))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'minirt\[spark\]'"):
        local_session("none")


@pytest.mark.spark
def test_a_local_session_is_reused_and_keeps_to_this_machine(spark: SparkSession) -> None:
    assert local_session("again") is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
