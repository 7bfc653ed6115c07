"""The page in a real browser: nothing is reported to its console, and it can be played by keyboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from minirt.pictures.page import page
from minirt.pictures.timeline import timeline
from tests.pictures.hand_made import aligned, unaligned, wide

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--virtual-time-budget=15000", "--enable-logging=stderr"),
)
DRIVER = """
<script>
addEventListener("load", () => {
  const slider = document.getElementById("time"), said = {};
  const count = what => [...document.querySelectorAll(what)].filter(e => e.style.display !== "none").length;
  const dots = () => count(".dots circle"), visible = () => count(".lane");
  said.atEnd = dots();
  slider.value = 120; slider.dispatchEvent(new Event("input"));
  said.moving = dots();
  said.words = slider.getAttribute("aria-valuetext");
  const group = document.querySelector(".group[role=button]");
  said.lanes = visible();
  if (group) {
    group.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
    said.unfolded = visible();
  }
  said.wider = document.documentElement.scrollWidth - innerWidth;
  document.getElementById("play").click();
  said.playing = document.getElementById("play").textContent;
  const look = left => {
    if (+slider.value <= 125 && left) { setTimeout(look, 100, left - 1); return; }
    said.moved = slider.value > 125;
    document.getElementById("play").click();
    said.after = document.getElementById("play").textContent;
    document.title = JSON.stringify(said);
  };
  look(100);
});
</script>
"""


def visit(tmp_path: Path, text: str, width: int) -> tuple[str, str]:
    """The document as it is in the end, and what the console was told."""
    file = tmp_path / "page.html"
    file.write_text(text.replace("</main>", DRIVER + "</main>"))
    command = [
        str(BROWSER),
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},900",
        "--dump-dom",
        file.as_uri(),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.skip("the browser does not answer on this machine")
    return out, "\n".join(line for line in errors.splitlines() if "CONSOLE" in line)


@pytest.mark.parametrize("width", [500, 1440])
def test_a_page_plays_without_a_complaint(tmp_path, width):
    out, console = visit(tmp_path, page([timeline(aligned()), timeline(unaligned())]), width)
    assert console == ""
    said = json.loads(re.search(r"<title>(.*?)</title>", out, re.DOTALL)[1].replace("&quot;", '"'))
    assert said["atEnd"] == 0
    assert said["moving"] > 0
    assert said["words"] == "6.72 s of 56.0 s"
    assert said["wider"] <= 0
    assert (said["playing"], said["moved"], said["after"]) == ("Pause", True, "Play")


def test_two_hundred_subtasks_can_be_unfolded(tmp_path):
    out, console = visit(tmp_path, page([timeline(wide(100))]), 1440)
    assert console == ""
    said = json.loads(re.search(r"<title>(.*?)</title>", out, re.DOTALL)[1].replace("&quot;", '"'))
    assert said["lanes"] < 12 < 100 < said["unfolded"]
