"""`minirt checkpoints ...` and `minirt history` find a storage by options alone."""

from __future__ import annotations

import sys

import fsspec
import pytest

import minirt as rt
from minirt.cli import main
from tests.s3.endpoint import Endpoint


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["minirt", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    return exited.value.code


def test_every_command_on_checkpoints_takes_storage_options(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    endpoint: Endpoint,
    prefix: str,
) -> None:
    env = rt.Environment("numbers")
    env.source(rt.SequenceSource(10), uid="numbers").sink(rt.DiscardSink(), uid="out")
    env.execute(checkpointing=rt.Checkpointing(prefix), runner="inline")
    for variable in endpoint.environment:
        monkeypatch.delenv(variable)
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # It would know the environment.
    # Else it would look for credentials of the machine in the network.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = [f"--storage-option={key}={value}" for key, value in endpoint.options.items()]
    for command, shown in (
        (["checkpoints", "list", prefix], "final"),
        (["checkpoints", "show", prefix], "checkpoint 1 of job numbers"),
        (["checkpoints", "verify", prefix], "all checksums are right"),
        (["checkpoints", "diff", prefix, "1", "1"], ""),
        (["checkpoints", "export", prefix, "--what", "splits"], "numbers"),
        (["history", prefix], "finished"),
        (["checkpoints", "delete", prefix, "1", "--yes", "--force"], "1"),
    ):
        assert called(monkeypatch, *command, *options) == 0
        printed = capsys.readouterr().out
        assert shown in printed
        assert endpoint.secret not in printed
