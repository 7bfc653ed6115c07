"""What the page on watching a job names exists."""

from __future__ import annotations

import re

from minirt.cli import app
from minirt.monitoring.catalogue import CATALOGUE as METRICS
from minirt.monitoring.logs import FIELDS
from minirt.settings.catalogue import CATALOGUE as OPTIONS
from tests.docs.blocks import ROOT, blocks

PAGE = ROOT / "docs/metrics.md"


def test_its_commands_options_and_metrics_are_known():
    text, commands = PAGE.read_text(), "\n".join(blocks(PAGE, "sh"))
    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    used = set(re.findall(r"^minirt (\w+)", commands, re.MULTILINE))
    assert used == {"top", "run", "history"}
    assert used <= known
    assert set(re.findall(r"options\.\w+", text)) - {"options"} <= set(OPTIONS)
    named = set(re.findall(r"minirt_\w+", text))
    assert named == {metric.name for metric in METRICS}
    assert all(f"`{field}`" in text for field in FIELDS)
