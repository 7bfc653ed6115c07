"""Advice on real jobs: the sick ones hear of their disease, the healthy ones of nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from minirt import Job
from minirt.advice.rules import Advice
from minirt.cli import app
from minirt.inspect import open_checkpoints
from tests.advice.patients import HEALTHY, SICK, Patient

pytestmark = pytest.mark.processes

ENTRIES = 7
"""How often the load must have been stored before anybody asks for advice."""
CHECKPOINTS = 2
WAIT_S_MAX = 180.0


def advised(patients: Mapping[str, Patient], folder: Path) -> Mapping[str, list[Advice]]:
    """What `minirt advise` says of each, asked by its storage; all of them run at the same time.

    The entry "by name" is what it says of the first one, asked by its name.
    """
    storages = {name: folder / str(place) for place, name in enumerate(patients)}
    jobs: dict[str, Job] = {}
    try:
        for name, patient in patients.items():
            jobs[name] = patient.start(name, str(storages[name]))
        until = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until and not all(map(_is_known, storages.values())):
            time.sleep(0.3)
        ended = {name: job for name, job in jobs.items() if job.status.value != "running"}
        assert not ended
        found = {name: _advice(str(storage)) for name, storage in storages.items()}
        return {**found, "by name": _advice(next(iter(patients)))}
    finally:
        for job in jobs.values():
            job.cancel()
        for job in jobs.values():
            job.wait_for_end()


def _is_known(storage: Path) -> bool:
    checkpoints = open_checkpoints(storage)
    return len(checkpoints.load()) >= ENTRIES and len(checkpoints.history()) >= CHECKPOINTS


def _advice(what: str) -> list[Advice]:
    answer = CliRunner().invoke(app, ["advise", what, "--json"])
    assert answer.exit_code == 0, answer.output
    return [Advice(**_frozen(one)) for one in json.loads(answer.stdout)]


def _frozen(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "evidence": tuple(one["evidence"])}


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Advice]]:
    return advised(SICK, tmp_path_factory.mktemp("sick"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Advice]]:
    return advised(HEALTHY, tmp_path_factory.mktemp("healthy"))


@pytest.mark.parametrize("name", SICK)
def test_a_disease_is_found_with_its_evidence_and_what_to_do(
    name: str, sick: Mapping[str, list[Advice]]
) -> None:
    patient, found = SICK[name], sick[name]
    topics = [one.topic for one in found]
    assert [topic for topic in topics if topic not in patient.maybe] == list(patient.topics), found
    said = "\n".join(
        text for one in found for text in (one.title, *one.evidence, one.option, one.effect)
    )
    for words in patient.words:
        assert words in said, said
    for one in found:
        assert any(char.isdigit() for line in one.evidence for char in line)
        assert one.option or one.effect


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_hears_nothing(name: str, healthy: Mapping[str, list[Advice]]) -> None:
    assert healthy[name] == []


def test_a_running_job_is_asked_by_its_name(sick: Mapping[str, list[Advice]]) -> None:
    assert {one.topic for one in sick["by name"]} >= {*SICK["too slow"].topics}
