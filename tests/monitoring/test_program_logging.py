"""Workers log as the program does: from the same level on, in the same format, and once."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import pytest

from minirt.config import Options
from minirt.monitoring.program_logging import ProgramLogging
from tests.docs.blocks import environment


@pytest.fixture(autouse=True)
def _logging_as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_program_without_a_console_handler_leaves_it_to_the_options():
    assert ProgramLogging.of_this_process(Options()) is None
    logging.getLogger().addHandler(logging.StreamHandler(io.StringIO()))
    assert ProgramLogging.of_this_process(Options()) is None


@pytest.mark.parametrize("given", [{"log_level": "debug"}, {"log_format": "json"}])
def test_options_that_say_how_to_log_take_precedence(given):
    logging.getLogger().addHandler(logging.StreamHandler())
    assert ProgramLogging.of_this_process(Options(**given)) is None
    assert ProgramLogging.of_this_process(Options()) is not None


def test_a_formatter_that_cannot_be_sent_is_replaced():
    class Stubborn(logging.Formatter):
        def __reduce__(self):
            raise TypeError("no")

    handler = logging.StreamHandler()
    handler.setFormatter(Stubborn())
    logging.getLogger().addHandler(handler)
    found = ProgramLogging.of_this_process(Options())
    assert found is not None
    logging.getLogger().handlers[:] = []
    found.set_up()
    [handler] = logging.getLogger().handlers
    record = logging.makeLogRecord({"levelname": "INFO", "name": "shop", "msg": "50%"})
    assert handler.format(record) == "INFO:shop:50%"


JOB = """
import logging
import sys

import minirt as rt

{set_up}
log = logging.getLogger("shop")


def price(number):
    log.info("item %d costs 50%%", number)
    logging.getLogger("noisy").info("never")
    print("printed", number)
    return number


if __name__ == "__main__":
    env = rt.Environment("prices")
    env.source(rt.SequenceSource(2), uid="numbers").map(price, name="prices").sink(rt.DiscardSink())
    env.execute()
"""
CONFIGURED = """
logging.basicConfig(level="INFO", format="%(levelname)s|%(name)s|%(message)s", stream=sys.stderr)
logging.getLogger("noisy").setLevel("ERROR")
logging.getLogger("minirt").setLevel("WARNING")
"""


def run(tmp_path, set_up):
    (tmp_path / "job.py").write_text(JOB.format(set_up=set_up))
    command = [sys.executable, "job.py"]
    return subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )


@pytest.mark.processes
def test_workers_log_as_the_program_has_set_it_up_and_each_message_once(tmp_path):
    ran = run(tmp_path, CONFIGURED)
    place = "[job=prices generation=1 operator=numbers subtask=0]"
    assert ran.stderr.splitlines() == [f"INFO|shop|item {n} costs 50% {place}" for n in range(2)], (
        ran.stderr
    )
    assert ran.stdout.splitlines() == ["printed 0", "printed 1"]


@pytest.mark.processes
def test_a_format_with_the_fields_is_left_as_it_is(tmp_path):
    fields = 'logging.basicConfig(level="INFO", format="%(operator)s/%(subtask)s %(message)s")\n'
    ran = run(tmp_path, fields + 'logging.getLogger("minirt").setLevel("WARNING")')
    shown = [line for line in ran.stderr.splitlines() if "item" in line]
    assert shown == [f"numbers/0 item {n} costs 50%" for n in range(2)], ran.stderr
