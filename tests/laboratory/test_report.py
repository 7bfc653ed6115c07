"""The page: its numbers are those of the JSON, it needs nothing else, and nothing can slip into it."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra lab is not installed")
pytest.importorskip("jinja2", reason="the extra lab is not installed")

from minirt.laboratory.explained import EXPLAINED
from minirt.laboratory.export import write_csv
from minirt.laboratory.findings import findings
from minirt.laboratory.matrix import Setting
from minirt.laboratory.measured import from_json, read_json, to_json
from minirt.laboratory.palette import ALL, styles
from minirt.laboratory.report import HTML_BYTES_MAX, to_html, write_svg
from minirt.laboratory.statistics import FIGURES, summary
from tests.laboratory.example import comparison, page_of_many_settings


@pytest.fixture(scope="module")
def page() -> str:
    return to_html(from_json(to_json(comparison()), "file"))


class Read(HTMLParser):
    """Figures by name and setting, ids, and everything that leads out of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.figures: dict[tuple[str, int], float] = {}
        self.ids: list[str] = []
        self.leads_out: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if "data-figure" in given:
            name, setting = given["data-figure"] or "", int(given["data-setting"] or -1)
            self.figures[name, setting] = float(given["data-value"] or "nan")
        if "id" in given:
            self.ids.append(given["id"] or "")
        for name in ("src", "href", "xlink:href", "action"):
            target = given.get(name)
            if target is not None and not target.startswith(("#", "data:,")):
                self.leads_out.append(target)


def test_every_figure_of_the_page_is_that_of_the_json(page):
    made = comparison()
    expected = {
        (figure.name, setting): found.median
        for figure in FIGURES
        for setting in range(2)
        if (found := summary(made, setting, figure.name)) is not None
    }
    assert Read(page).figures == expected
    assert len(expected) > 40


def test_the_page_needs_nothing_else_and_runs_nothing(page):
    read = Read(page)
    assert read.leads_out == []
    assert not {"script", "iframe", "object", "embed"} & {*read.tags}
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_ids_are_unique_and_what_refers_to_one_finds_it(page):
    ids = Read(page).ids
    assert len(ids) == len(set(ids))
    assert {*re.findall(r"url\(#([^)]+)\)", page)} <= {*ids}
    assert {*re.findall(r'xlink:href="#([^"]+)"', page)} <= {*ids}


def test_plots_take_their_colours_from_the_page(page):
    body = page[page.index("<svg") :]
    for colour in ALL:
        assert colour.light not in body.lower()
        assert f"--{colour.name}: {colour.dark}" in page
    assert "prefers-color-scheme: dark" in page


def test_the_page_is_small(page):
    assert len(page.encode()) < 300_000


def test_findings_stand_in_words_on_the_page(page):
    assert "119 times less (p = 0.1)" in page
    assert "within the noise" in page


def test_what_a_job_is_called_cannot_become_markup():
    evil = "<script>alert(1)</script>"
    made = replace(comparison(), title=evil, command=evil, target=evil, notes=(evil,))
    run = replace(made.runs[0], ended="failed", error=evil)
    assert "<script" not in to_html(replace(made, runs=(run, *made.runs[1:]), labels=(evil, evil)))


@pytest.mark.parametrize("runs", [0, 1])
def test_next_to_nothing_makes_a_page_too(runs):
    made = comparison()
    cut = replace(made, runs=made.runs[:runs], complete=False)
    assert "Incomplete" in to_html(cut)


def test_many_settings_make_a_page_of_bounded_size():
    assert len(page_of_many_settings().encode()) < HTML_BYTES_MAX


def test_modes_keep_their_colour_whatever_they_are_compared_with():
    [alone] = styles([Setting("unaligned")])
    _, beside = styles([Setting("aligned"), Setting("unaligned")])
    assert alone == beside
    one, two = styles([Setting("aligned", 2), Setting("aligned", 4)])
    assert one.colour == two.colour
    assert (one.line, one.marker) != (two.line, two.marker)


def test_svg_files_stand_alone(tmp_path):
    write_svg(comparison(), tmp_path / "plots")
    files = sorted((tmp_path / "plots").glob("*.svg"))
    assert {"parts", "throughput", "recovery"} <= {file.stem for file in files}
    for file in files:
        ElementTree.parse(file)
        assert "var(--" not in file.read_text()


def test_csv_has_every_run_and_every_checkpoint(tmp_path):
    made = comparison()
    write_csv(made, tmp_path / "csv")
    with (tmp_path / "csv/runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["sink_rate"]) for row in rows] == [run.sink_records / 10 for run in made.runs]
    with (tmp_path / "csv/checkpoints.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + sum(len(run.checkpoints) for run in made.runs)


def test_the_example_of_the_docs_says_what_was_measured():
    docs = Path(__file__).parents[2] / "docs"
    words = " ".join((docs / "comparing-modes.md").read_text().split())
    for finding in findings(read_json(docs / "comparing/throttled.json")):
        assert str(finding) in words


def test_every_figure_is_explained_where_it_is_shown(page):
    assert EXPLAINED.keys() == {figure.name for figure in FIGURES}
    for one in FIGURES:
        said = f"<dt>{escape(one.title)}</dt><dd>{escape(EXPLAINED[one.name])}</dd>"
        assert (said in page) == (f'data-figure="{one.name}"' in page), one.name


def test_the_number_of_runs_stands_at_a_figure_only_where_it_is_another_one():
    made = comparison()
    some = [run for run in made.runs if run.setting == 0][:1]
    fewer = tuple(replace(run, latency=None) if run in some else run for run in made.runs)
    cells = re.findall(r'<td class="value"[^>]*>.*?</td>', to_html(replace(made, runs=fewer)))
    told = [cell for cell in cells if 'data-figure="latency_' in cell and "runs" in cell]
    assert len(told) == 3
    assert all('data-setting="0"' in cell and "of 2 runs" in cell for cell in told)
