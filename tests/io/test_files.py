"""Which files a path stands for."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import CsvSource, JsonlSink
from minirt.io.files import InputFiles, split_target


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def listed(path: object, folder: Path, compressed: bool = False) -> list[str]:
    files = InputFiles(path, (".csv",), compressed=compressed)  # type: ignore[arg-type]
    return [file.path.removeprefix(f"{folder}/") for file in files.list()]


def test_a_folder_stands_for_its_files_with_the_right_suffix_at_any_depth(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "deep/er/c.csv", "notes.txt", "noext")
    assert listed(tmp_path, tmp_path) == ["a.csv", "b.csv", "deep/er/c.csv"]


def test_hidden_names_are_ignored_as_spark_does(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "_b.csv", ".c.csv", "_minirt/d.csv", ".t/e.csv", "_k=1/f.csv")
    assert listed(tmp_path, tmp_path) == ["_k=1/f.csv", "a.csv"]
    assert listed(tmp_path / "*", tmp_path) == ["_k=1/f.csv", "a.csv"]


def test_the_folder_itself_may_have_a_hidden_name(tmp_path: Path) -> None:
    touch(tmp_path, "_data/a.csv")
    assert listed(tmp_path / "_data", tmp_path) == ["_data/a.csv"]
    assert listed(tmp_path / "_data" / "*.csv", tmp_path) == ["_data/a.csv"]


def test_a_file_named_outright_needs_no_suffix(tmp_path: Path) -> None:
    touch(tmp_path, "_odd[1].txt")
    assert listed(tmp_path / "_odd[1].txt", tmp_path) == ["_odd[1].txt"]


def test_a_list_keeps_its_order_and_names_each_file_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "b.csv", "c.csv")
    paths = [tmp_path / "c.csv", tmp_path / "[ab].csv", tmp_path]
    assert listed(paths, tmp_path) == ["c.csv", "a.csv", "b.csv"]


def test_compressed_files_count_where_the_source_can_read_them(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv.gz", "b.csv.bz2")
    assert listed(tmp_path, tmp_path, compressed=True) == ["a.csv.gz", "b.csv.bz2"]
    with pytest.raises(ConfigurationError, match="holds no file"):
        listed(tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["missing", "missing/*.csv", "."])
def test_a_path_that_matches_nothing_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        InputFiles(tmp_path / name, (".csv",)).list()
    assert str(tmp_path / name) in str(caught.value)
    assert ".csv" in str(caught.value)


def test_other_file_systems_are_listed_and_read() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/input/a.csv", b"hello")
    files = InputFiles("memory://input", (".csv",))
    (file,) = files.list()
    stream, opened = files.open(file.path)
    with opened:
        assert (stream.read(), file.size) == (b"hello", 5)


@pytest.mark.parametrize("path", ["", None, 3, "nosuch://x"])
def test_what_is_no_usable_path_is_refused(path: object) -> None:
    with pytest.raises(ConfigurationError, match="path"):
        InputFiles(path and [path], (".csv",)) if path else InputFiles([path], (".csv",))  # type: ignore[list-item]


def test_an_empty_list_and_mixed_file_systems_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="empty list"):
        InputFiles([], (".csv",))
    with pytest.raises(ConfigurationError, match="share a file system"):
        InputFiles([tmp_path, "memory://x"], (".csv",))


def test_a_relative_path_stays_the_same_place_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "in/a.csv")
    monkeypatch.chdir(tmp_path)
    files = InputFiles("in", (".csv",))
    monkeypatch.chdir("/")
    assert [file.path for file in files.list()] == [f"{tmp_path}/in/a.csv"]


def test_a_file_that_vanished_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(SourceDataError, match=r"cannot open .*gone\.csv"):
        InputFiles(tmp_path, (".csv",)).open(f"{tmp_path}/gone.csv")


def test_splits_are_small_enough_for_all_subtasks_but_not_tiny() -> None:
    assert split_target(total_bytes=1 << 30, parallelism=2, most=32 << 20) == 32 << 20
    assert split_target(total_bytes=64 << 20, parallelism=2, most=32 << 20) == 8 << 20
    assert split_target(total_bytes=16 << 20, parallelism=2, most=32 << 20) == 2 << 20
    assert split_target(total_bytes=4 << 20, parallelism=2, most=32 << 20) == 1 << 20
    assert split_target(total_bytes=600_000, parallelism=2, most=32 << 20) == 300_000
    assert split_target(total_bytes=100, parallelism=2, most=32 << 20) == 64 << 10
    assert split_target(total_bytes=1 << 30, parallelism=2, most=1000) == 1000


def test_a_file_whose_name_no_checkpoint_can_hold_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "fine.csv")
    name = os.fsencode(tmp_path) + b"/caf\xe9.csv"
    Path(os.fsdecode(name)).write_text("a\n1\n")
    for path in (tmp_path, tmp_path / "*.csv", os.fsdecode(name)):
        with pytest.raises(ConfigurationError, match=r"not UTF-8: b'.*caf\\xe9\.csv'; rename it"):
            CsvSource(path).validate()
    with pytest.raises(ConfigurationError, match=r"not UTF-8: b'.*caf\\xe9\.csv'"):
        JsonlSink(os.fsdecode(name))
