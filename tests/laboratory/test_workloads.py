"""The check of the workloads finds what is missing, what came twice, and what nobody sent."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

import minirt as rt
from minirt.laboratory.measured import Verification
from minirt.laboratory.notes import Notebook
from minirt.laboratory.workload import Place, Workload
from minirt.laboratory.workloads.joined import Joined
from minirt.laboratory.workloads.nexmark import Nexmark, Query
from minirt.laboratory.workloads.parts import (
    NumberedSource,
    source_lag,
    steps,
    verify_numbers,
)
from minirt.laboratory.workloads.skewed_join import SkewedJoin
from minirt.laboratory.workloads.tally import check_number, verify_tally
from minirt.laboratory.workloads.windowed import Windowed

SECOND_SPLIT = 1 << 40


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(str(tmp_path))
    made.notes.mkdir()
    made.outputs.mkdir()
    return made


def end_sources(place: Place, *counts: int) -> None:
    for split, count in enumerate(counts):
        book = Notebook(str(place.notes), f"source-{split}", 1)
        book.reach(count)
        book.mark(-1)
        book.close()


def commit(place: Place, name: str, *ids: int) -> None:
    content = np.diff(np.array(ids, np.int64), prepend=0).tobytes()
    (place.outputs / f"{name}.ids").write_bytes(zlib.compress(content))


def test_everything_once_passes(place):
    end_sources(place, 3, 2)
    commit(place, "0-1-1", 0, SECOND_SPLIT, 2)
    commit(place, "0-1-2", SECOND_SPLIT + 1, 1)
    found = verify_numbers(place)
    assert (found.verdict, found.expected, found.missing, found.twice) == ("passed", 5, 0, 0)


@pytest.mark.parametrize(
    ("ids", "missing", "twice"),
    [((0, 1), 1, 0), ((0, 1, 1, 2), 0, 1), ((0, 0, 2), 1, 1), ((0, 1, 2, 3), 0, 0), ((), 3, 0)],
)
def test_anything_else_fails(place, ids, missing, twice):
    end_sources(place, 3)
    if ids:
        commit(place, "0-1-1", *ids)
    found = verify_numbers(place)
    assert (found.verdict, found.missing, found.twice) == ("failed", missing, twice)


def test_what_was_not_committed_is_missing(place):
    end_sources(place, 1)
    commit(place, "0-1-1", 0)
    (place.outputs / "0-1-1.ids").rename(place.outputs / "0-1-1.pending")
    assert verify_numbers(place).missing == 1


def test_sources_that_did_not_end_leave_it_open(place):
    Notebook(str(place.notes), "source-0", 1).reach(3)
    assert verify_numbers(place).verdict == "not verified"


def test_a_paced_source_gives_out_what_is_due_and_says_when_it_was(place):
    source = NumberedSource(place, 10, steps((0.1, 1000), (1.0, 0.0)))
    splits = source.plan_splits(2)
    wall = splits[0].info["wall"]
    time.sleep(0.15)
    readers = [source.open_split(split, None) for split in splits]
    records = [record for reader in readers for record in reader.read() or []]
    assert len({record[0] for record in records}) == len(records) == 100
    late = [record[2] / 1e9 - wall for record in records]
    assert min(late) >= 0
    assert max(late) == pytest.approx(0.1, abs=0.002)
    assert len({record[3] for record in records}) > 40
    for reader in readers:
        reader.close()
    lag = source_lag(place, lambda at: 150.0, time.monotonic() - 0.5)
    assert lag.values[-1] in (50.0, 150.0)


def test_a_split_read_again_gives_the_same_records(place):
    source = NumberedSource(place, 10, payload_chars=250)
    [split] = source.plan_splits(1)
    first = source.open_split(split, None)
    one, two = first.read(), first.read()
    again = source.open_split(split, len(one or [])).read()
    assert [(id, key, text) for id, key, _, text in two or []] == [
        (id, key, text) for id, key, _, text in again or []
    ]
    assert {len(record[3]) for record in one or []} == {250}


def test_once_time_is_up_the_job_ends_and_nothing_is_slow(place):
    from minirt.laboratory.workloads.throttled import Throttled

    place.finish.touch()
    began = time.monotonic()
    env = Throttled(record_ms=1000).environment(1, place)
    env.execute(
        runner="inline",
        checkpointing=rt.Checkpointing(f"{place.folder}/checkpoints", interval="1h"),
    )
    assert time.monotonic() - began < 10
    assert verify_numbers(place).verdict in ("passed", "not verified")


def test_a_record_that_comes_once_more_is_as_old_as_it_was(place):
    source = NumberedSource(place, 10)
    [split] = source.plan_splits(1)
    reader = source.open_split(split, None)
    first = [reader.read() or [], reader.read() or []]
    reader.close()
    time.sleep(0.3)
    reader = source.open_split(split, 64)
    again, new = reader.read() or [], reader.read() or []
    made = {record[0]: record[2] for records in first for record in records}
    assert [record[0] for record in again] == list(range(64, 192))
    assert all(abs(record[2] - made[record[0]]) < 0.1e9 for record in again)
    assert all(record[2] - made[255] > 0.25e9 for record in new if record[0] > 255)


def test_every_record_is_in_one_window(place):
    found = run_until_there_are(3, Windowed(keys=50, window_records=500), place)
    assert (found.verdict, found.missing, found.twice) == ("passed", 0, 0)
    assert (found.expected or 0) >= 128
    [*_, path] = sorted(place.outputs.glob("*.tally"))
    path.unlink()
    lost = verify_tally(place)
    assert lost.verdict == "failed"
    assert (lost.missing or 0) > 0


def test_a_record_in_the_place_of_another_is_found_in_sums(place):
    end_sources(place, 2)
    right, wrong = check_number(0) + check_number(1), check_number(0) + check_number(2)
    (place.outputs / "0-1-1.tally").write_text(f"[2, {right}]")
    assert verify_tally(place).verdict == "passed"
    (place.outputs / "0-1-1.tally").write_text(f"[2, {wrong}]")
    found = verify_tally(place)
    assert (found.verdict, found.missing, found.twice) == ("failed", 0, 0)
    (place.outputs / "0-1-2.tally").write_text(f"[1, {check_number(1)}]")
    assert verify_tally(place).twice == 1


@pytest.mark.parametrize("workload", [Joined(waiting=100), SkewedJoin(waiting=100)])
def test_every_pair_comes_once(place, workload):
    found = run_until_there_are(3, workload, place)
    assert (found.verdict, found.missing, found.twice) == ("passed", 0, 0)
    assert (found.expected or 0) > 0


@pytest.mark.parametrize("query", ["q1", "q3", "q8", "q12"])
def test_a_query_of_nexmark_puts_out_what_plain_python_finds(place: Place, query: Query) -> None:
    workload = Nexmark(query, events_per_s=8000, window_s=0.1)
    found = run_until_there_are(3, workload, place)
    assert found.verdict == "passed", found.words
    assert (found.expected or 0) >= 3
    [*_, path] = sorted(place.outputs.glob("*.tally"))
    path.unlink()
    lost = workload.verify(place)
    assert (lost.verdict, (lost.missing or 0) > 0) == ("failed", True)


def run_until_there_are(results: int, workload: Workload, place: Place) -> Verification:
    """Inline, until so many files of results are committed."""

    def shown() -> int:
        return sum(path.suffix in (".tally", ".ids") for path in place.outputs.iterdir())

    def watch() -> None:
        until = time.monotonic() + 60
        while shown() < results and time.monotonic() < until:
            time.sleep(0.02)
        place.finish.touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    workload.environment(2, place).execute(
        checkpointing=rt.Checkpointing(f"{place.folder}/checkpoints", interval="100ms"),
        runner="inline",
    )
    watcher.join()
    return workload.verify(place)


def test_each_module_can_be_the_first_to_be_imported() -> None:
    """A worker imports those first that the functions of its job are in."""
    code = """
import importlib, pkgutil, sys
import minirt.laboratory as laboratory
names = [one.name for one in pkgutil.walk_packages(laboratory.__path__, "minirt.laboratory.")]
for name in names:
    for loaded in [one for one in sys.modules if one.startswith("minirt.laboratory")]:
        del sys.modules[loaded]
    importlib.import_module(name)
print(len(names))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) > 30
