"""What workers log reaches the program's own handlers once, and its console once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import minirt as rt


def _warned(number: int) -> int:
    if number == 3:
        logging.getLogger("of.the.job").warning("number %d", number)
    return number


@pytest.mark.processes
def test_a_file_of_the_program_holds_what_workers_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = logging.FileHandler(tmp_path / "log.txt")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s %(operator)s"))
    logging.getLogger().addHandler(handler)
    try:
        env = rt.Environment("logs")
        env.source(rt.SequenceSource(10), uid="n").map(_warned, uid="m").sink(rt.DiscardSink())
        env.execute()
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines.count("WARNING of.the.job number 3 n") == 1
    assert capfd.readouterr().err.count("number 3") == 1
