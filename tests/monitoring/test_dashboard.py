"""The dashboard and what it is made to read: every metric in it exists, with the labels it asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from minirt.monitoring.catalogue import CATALOGUE

DOCKER = Path(__file__).parent.parent.parent / "docker"
LABELS = {metric.name: set(metric.labels) for metric in CATALOGUE}
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/minirt.json").read_text())
VARIABLES = DASHBOARD["templating"]["list"]
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(variable["query"]["query"] for variable in VARIABLES),
]


def faults(expression: str) -> list[str]:
    """What an expression asks for that is not there."""
    found = []
    for name, selector in re.findall(r"(minirt_\w+)(?:\{(.*?)\})?", expression):
        wanted = set(re.findall(r"(\w+)=~?\"", selector))
        if name not in LABELS:
            found.append(f"no metric {name}")
        elif not wanted <= LABELS[name]:
            found.append(f"no labels {wanted - LABELS[name]} of {name}")
        for by in re.findall(r"by \((\w+)\)", expression):
            if name in LABELS and by not in LABELS[name]:
                found.append(f"no label {by} of {name}")
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_asks_for_what_there_is(expression):
    assert "minirt_" in expression
    assert faults(expression) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "rate(minirt_busy_seconds[1m])",
        'minirt_job_status{operator="a"} == 1',
        "sum by (operator) (minirt_job_generation)",
    ],
)
def test_what_there_is_not_would_be_found(wrong):
    assert faults(wrong) != []


def test_variables_and_panels_fit_together():
    names = {variable["name"] for variable in VARIABLES}
    used = set(re.findall(r"\$(\w+)", " ".join(EXPRESSIONS))) - {"__rate_interval"}
    assert used == names
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_dashboard_shows_what_operators_look_for():
    shown = " ".join(EXPRESSIONS)
    for part in ("busy", "soft_backpressure", "hard_backpressure", "records_in", "bytes_out"):
        assert f"minirt_{part}" in shown
    for name in ("minirt_watermark_lag_seconds", "minirt_last_checkpoint_duration_seconds"):
        assert name in shown


def test_prometheus_keeps_the_names_of_jobs_and_grafana_finds_it():
    [scrape] = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]
    assert scrape["honor_labels"] is True
    ports = ("9464", "9465")
    assert scrape["static_configs"] == [
        {"targets": [f"host.docker.internal:{port}" for port in ports]}
    ]
    sources = yaml.safe_load((DOCKER / "grafana/datasources/prometheus.yml").read_text())
    uid = sources["datasources"][0]["uid"]
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {uid}
    [provider] = yaml.safe_load((DOCKER / "grafana/dashboards/minirt.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/etc/grafana/provisioning/dashboards"
