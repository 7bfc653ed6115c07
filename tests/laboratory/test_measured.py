"""The JSON: what is written is read again, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest

from minirt.errors import ConfigurationError
from minirt.laboratory.measured import from_json, read_json, to_json
from tests.laboratory.example import comparison, crossed


@pytest.mark.parametrize("made", [comparison(), crossed()])
def test_json_and_back_is_the_same(made):
    assert from_json(to_json(made), "file") == made


def test_every_run_is_in_it():
    plain = json.loads(to_json(comparison()))
    assert [(run["setting"], run["repeat"]) for run in plain["runs"]] == [
        (setting, repeat) for repeat in range(3) for setting in range(2)
    ]
    assert plain["seed"] == 7
    assert plain["machine"]["cores"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, "format 99"),
        ({"runs": "none"}, "runs"),
        ({"labels": []}, "name for each setting"),
        ({"title": 3}, "title"),
    ],
)
def test_what_is_no_comparison_is_refused_by_name(change, said):
    plain = json.loads(to_json(comparison())) | change
    with pytest.raises(ConfigurationError, match=said):
        from_json(json.dumps(plain), "file")


def test_a_run_of_no_setting_is_refused():
    plain = json.loads(to_json(comparison()))
    plain["runs"][0]["setting"] = 2
    with pytest.raises(ConfigurationError, match="setting 2"):
        from_json(json.dumps(plain), "file")


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "[" * 100_000])
def test_other_files_are_refused(text, tmp_path):
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError):
        read_json(file)


def test_a_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_json(tmp_path / "missing.json")
