"""Names of files in handles: only those that a file sink has given out are ever taken for its own."""

from __future__ import annotations

import pytest

from minirt.errors import CorruptCheckpointError
from minirt.io.base import SinkContext, SinkIdentity
from minirt.io.file_names import FileHandle, FileNames

CONTEXT = SinkContext(SinkIdentity("job", "out"), "out", subtask=3, parallelism=4, generation=2)
NAMES = FileNames("/data/out", ".jsonl", CONTEXT)
PENDING, FINAL = NAMES.pending(1), NAMES.final(1, 7)
OWNER = PENDING.split("/")[-2]


def test_a_handle_names_what_its_sink_gave_out() -> None:
    handle = FileHandle.parse({"pending": PENDING, "final": FINAL})
    assert (handle.folder, handle.pending, handle.final) == ("/data/out", PENDING, FINAL)


@pytest.mark.parametrize(
    "owner", ["..", ".", "", "../..", f"{OWNER}/..", f"../{OWNER}", "job", f"{OWNER} ", "-x"]
)
def test_a_pending_file_of_no_owner_is_no_pending_file(owner: str) -> None:
    """Such a path may lead to a file in the target folder itself, or above it."""
    bent = PENDING.replace(f"/{OWNER}/", f"/{owner}/")
    with pytest.raises(CorruptCheckpointError, match="was not made by a file sink"):
        FileHandle.parse({"pending": bent, "final": FINAL})


@pytest.mark.parametrize("owner", ["..", "another-0123abcd"])
def test_parts_lie_beside_the_file_that_is_made_of_them(owner: str) -> None:
    part = NAMES.pending(2).replace(f"/{OWNER}/", f"/{owner}/")
    with pytest.raises(CorruptCheckpointError, match="was not made by a file sink"):
        FileHandle.parse({"pending": PENDING, "final": FINAL, "parts": [part]})


@pytest.mark.parametrize("folder", ["x=1/..", "..", "x=1/../..", "x", "x=1/x"])
def test_a_final_file_lies_in_the_folder_or_in_a_partition(folder: str) -> None:
    name = FINAL.rpartition("/")[2]
    with pytest.raises(CorruptCheckpointError, match="was not made by a file sink"):
        FileHandle.parse({"pending": PENDING, "final": f"/data/out/{folder}/{name}"})
