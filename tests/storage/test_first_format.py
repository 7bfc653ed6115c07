"""A checkpoint that version 0.1 has written restores, and every result comes exactly once."""

from __future__ import annotations

import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from tests.storage.first_format import job as first_format
from tests.storage.first_format.job import COUNT, EVERY_MS, KEYS, SHOWN, WINDOW_MS, ZIPPED


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    """The storage of the old job, while the world outside has seen what it had committed by then."""
    with zipfile.ZipFile(ZIPPED) as zipped:
        zipped.extractall(tmp_path)
    first_format.OUTPUT.clear()
    first_format.OUTPUT["before"] = json.loads((tmp_path / SHOWN).read_text())
    yield tmp_path
    first_format.OUTPUT.clear()


def all_results() -> Counter[str]:
    """What the job puts out from its begin to its end."""
    of_key: dict[str, list[int]] = defaultdict(list)
    windows: Counter[tuple[str, int]] = Counter()
    for number in range(COUNT):
        key = f"key {number % KEYS}"
        of_key[key].append(number)
        windows[key, number * EVERY_MS // WINDOW_MS] += number
    rows: list[Any] = [("window", key, total) for (key, _), total in windows.items()]
    for key, numbers in of_key.items():
        rows += [("count", key, nth) for nth in range(1, len(numbers) + 1)]
        rows += [("timer", key, number) for number in numbers]
        thirds = Counter(number % 3 for number in numbers)
        rows.append(("all", key, sum(numbers), sorted(thirds.items())))
        rows.append({"k": key, "sum": sum(numbers), "count": len(numbers)})
        rows += [key] * len(numbers)
    return Counter(map(json.dumps, rows))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_checkpoint_of_the_first_format_restores(storage: Path, parallelism: int) -> None:
    before = first_format.shown()
    assert before < all_results()
    first_format.job(parallelism).execute(
        checkpointing=rt.Checkpointing(storage, mode="unaligned"), restore="latest", runner="inline"
    )
    assert (storage / "generations/00000002.from-chk-00000003-g00000001").exists()
    assert first_format.shown() == all_results()


def test_it_holds_records_in_flight_and_output_that_waits_for_its_commit(storage: Path) -> None:
    [stored] = rt.open_checkpoints(str(storage))
    assert sum(1 for channel in stored.in_flight for _ in channel) > 20
    assert first_format.shown() < all_results()
