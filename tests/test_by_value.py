"""What a program defines reaches other processes whole, caches of `functools` included."""

from __future__ import annotations

import functools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from minirt import by_value

PROGRAM = '''
import functools
import sys
from pathlib import Path

from minirt import by_value


@functools.cache
def fibonacci(n):
    """Calls itself by its name."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Prices:
    def __init__(self, rate):
        self.rate = rate

    @functools.lru_cache(maxsize=2, typed=True)
    def price(self, amount):
        return self.rate * amount

    @functools.cached_property
    def half(self):
        return self.rate / 2

    @staticmethod
    @functools.cache
    def twice(n):
        return 2 * n


def limited(limit):
    @functools.lru_cache(maxsize=limit)
    def below(n):
        return min(n, limit)

    return below


def asked(n):
    prices = Prices(3)
    return [fibonacci(n), prices.price(n), prices.half, prices.twice(n), limited(5)(n)]


fibonacci(20)
sent = [fibonacci, Prices, limited(5), asked]
Path(sys.argv[1]).write_bytes(by_value.dumps(sent))
'''

READER = """
import json, pickle, sys
from pathlib import Path

fibonacci, Prices, below, asked = pickle.loads(Path(sys.argv[1]).read_bytes())
known = fibonacci.cache_info().currsize
print(json.dumps([asked(30), below(9), known, fibonacci.cache_info().misses, fibonacci.__doc__,
    below.cache_parameters()["maxsize"], Prices.price.cache_parameters()["typed"], Prices(8).half]))
"""


def test_caches_of_a_program_reach_a_process_that_cannot_import_it(tmp_path: Path) -> None:
    program, sent = tmp_path / "program.py", tmp_path / "sent"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, program, sent], check=True)
    read = [sys.executable, "-c", READER, sent]
    printed = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    values, below, known, misses, text, limit, typed, half = json.loads(printed)
    assert values == [832040, 90, 1.5, 60, 5]
    assert (below, limit, typed, half) == (5, 5, True, 4.0)
    assert text == "Calls itself by its name."
    assert (known, misses) == (0, 31), "it arrives empty, and calls itself through its cache"


FAILING = """
import sys
import minirt as rt


def inverse(n):
    return [1 / n for _ in 'a']  # The line to look at.


env = rt.Environment("failing")
env.source(rt.SequenceSource(1)).map(lambda n: inverse(n)).sink(rt.DiscardSink())
env.execute(restart=rt.Restart.none())
"""


def test_the_traceback_of_a_function_names_its_file_and_shows_its_line(tmp_path: Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text(FAILING)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    said = done.stderr[done.stderr.index("JobFailedError") :]
    assert f"File \"{program}\", line 7, in inverse\n    return [1 / n for _ in 'a']" in said
    assert f'File "{program}", line 11, in <lambda>' in said


@functools.cache
def importable(n: int) -> int:
    return n


def test_what_can_be_imported_goes_by_its_name() -> None:
    assert pickle.loads(by_value.dumps(importable)) is importable


@pytest.mark.parametrize("registered", ["tests", "tests.test_by_value"])
def test_what_is_registered_goes_by_value(registered: str) -> None:
    module = sys.modules[registered]
    cloudpickle.register_pickle_by_value(module)
    try:
        again = pickle.loads(by_value.dumps(importable))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert again is not importable
    assert again(3) == 3
