"""`python -m benchmarks.kafka` with few records: each run looks at its results itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kafka import OWN, SYSTEMS, count_and_sum, fill
from benchmarks.kafka_work import expected_sum, record, value
from tests.kafka.broker import Cluster
from tests.needs import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.processes]

RECORDS = 4000


def test_a_record_has_100_bytes() -> None:
    for id in (1_000_000, 9_999_999):
        assert len(value(id)) == 100
        assert json.loads(value(id)) == record(id)


@pytest.mark.soak  # What it measures is what other tests run.
@pytest.mark.parametrize(
    ("called", "wanted"),
    [
        (["both", "--systems", "minirt"], [("both", "minirt")]),
        (["both"], [("both", system) for system in OWN]),
        (["source", "--systems", "minirt"], [("source", "minirt")]),
        (
            ["source", "sink"],
            [
                (case, system)
                for case in ("source", "sink")
                for system in OWN
                if case in SYSTEMS[system].works
            ],
        ),
    ],
)
def test_rates_are_measured_and_nothing_is_left(
    cluster: Cluster, tmp_path: Path, called: list[str], wanted: list[tuple[str, str]]
) -> None:
    before = cluster.admin.list_topics(timeout=30).topics.keys()
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.kafka", *called, "--bootstrap", cluster.bootstrap]
    command += ["--records", str(RECORDS), "--json", str(report)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    rows = json.loads(report.read_text())["rows"]
    assert [(row["case"], row["system"]) for row in rows if row["records_per_s"] > 0] == wanted
    left = cluster.admin.list_topics(timeout=30).topics.keys() - before
    assert not [topic for topic in left if topic.startswith("minirt-benchmark")]


def test_records_that_are_missing_would_be_seen(cluster: Cluster) -> None:
    topic = fill(cluster.bootstrap, RECORDS)
    assert count_and_sum(cluster.bootstrap, topic) == (RECORDS, expected_sum(RECORDS))
    cluster.send(topic, [value(1_000_007)])
    assert count_and_sum(cluster.bootstrap, topic) != (RECORDS, expected_sum(RECORDS))
    cluster.admin.delete_topics([topic])[topic].result(30)
