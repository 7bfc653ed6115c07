"""Pictures as one HTML file that needs nothing else: lanes, queues, and barriers that move."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from minirt.pictures.critical_path import Step
from minirt.pictures.layout import LABEL_WIDTH, Layout, lay_out
from minirt.pictures.stage import stage, stage_data
from minirt.pictures.svg import asset, legend_of, of_stage, of_timeline
from minirt.pictures.timeline import Timeline
from minirt.pictures.words import duration, heading, numbered, step_in_words, verdict

_DOT = "A dot is a barrier."
_DOT_OF_LINE = (
    "A dot is a mark, which tells where its sender's snapshot was taken. It overtakes records."
)


def page(timelines: Sequence[Timeline]) -> str:
    """The pictures below each other, on the same axis and with the same slider."""
    end = max(timeline.end for timeline in timelines)
    title = heading(timelines[0])
    if len(timelines) > 1:
        one = timelines[0]
        modes = " and ".join(timeline.mode for timeline in timelines)
        title = f"{numbered(one)} of {one.job}: {modes}"
    views: list[dict[str, Any]] = []
    sections: list[str] = []
    for timeline in timelines:
        layout = lay_out(timeline, end=end)
        drawn = stage(timeline, layout.path)
        views.append({**_view(layout), **stage_data(drawn)})
        sections += _section(timeline, layout, of_stage(drawn, _queues_label(timeline)))
        if drawn.left_out:
            sections.append(
                f'<p class="note">{drawn.left_out} subtasks that the checkpoint did not wait for have no '
                "room in the drawing of the queues.</p>"
            )
    data = {"labelWidth": LABEL_WIDTH, "end": end, "views": views}
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
            "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">",
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{asset('picture.css')}{asset('page.css')}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            '<div class="controls"><button id="play" type="button">Play</button>'
            '<label for="time">time</label><input id="time" type="range" min="0" max="1000" value="1000">'
            '<output id="shown" for="time"></output></div>',
            _legend(timelines),
            *sections,
            f'<script type="application/json" id="data">{_embedded(data)}</script>',
            f"<script>{asset('page.js')}</script></main></body></html>",
        ]
    )


def _section(timeline: Timeline, layout: Layout, queues: str) -> Iterable[str]:
    path = layout.path
    yield f"<section><h2>{escape(timeline.mode)}</h2>"
    yield f'<p class="verdict">{escape(verdict(timeline, path))}</p>'
    yield (
        f'<figure class="scroll" tabindex="0" role="group" aria-label="queues">{queues}</figure>'
        '<p class="note">Queues: a line from a subtask to the next is its output queue, then the '
        f"receiver's input queue. {_DOT_OF_LINE if timeline.is_line else _DOT}</p>"
    )
    if timeline.is_line:
        yield (
            '<p class="note">Each subtask took its snapshot by its own clock; lines between lanes are the '
            "marks of these. What a receiver had not processed when it took its own, up to the mark of the "
            "sender's, is in transit. Time 0 is that of the oldest snapshot; the dotted line is where the "
            "checkpoint was begun.</p>"
        )
    lanes = of_timeline(layout, f"{heading(timeline)}: lanes of its subtasks")
    yield f'<figure class="scroll" tabindex="0" role="group" aria-label="lanes">{lanes}</figure>'
    yield "<details open><summary>The critical path: what the checkpoint waited for</summary>"
    yield f'<ol class="steps">{"".join(_steps(timeline, path))}</ol></details>'
    yield f'<p class="note">{escape(_clocks(timeline))}</p></section>'


def _steps(timeline: Timeline, path: Sequence[Step]) -> Iterable[str]:
    longest = max((step.duration for step in path), default=0.0)
    for step in path:
        mark = ' class="longest"' if step.duration == longest else ""
        yield f"<li{mark}>{escape(step_in_words(timeline, step))}</li>"


def _view(layout: Layout) -> dict[str, Any]:
    """When each barrier that is drawn was sent, arrived and was gone, in the order of the lines."""
    lines = [line.times for line in sorted(layout.lines, key=lambda one: one.on_path)]
    return {"width": layout.width, "scale": layout.scale, "lines": lines}


def _legend(timelines: Sequence[Timeline]) -> str:
    legend = legend_of(timelines)
    items = "".join(
        f'<li><i style="background:var(--{kind})"></i>{words}</li>'
        for kind, words in legend.items()
    )
    return f'<ul class="legend">{items}</ul>'


def _queues_label(timeline: Timeline) -> str:
    return f"{heading(timeline)}: the queues between its subtasks"


def _clocks(timeline: Timeline) -> str:
    errors = [lane.clock_error_s for lane in timeline.lanes]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return "Nobody had measured the clocks of all processes: lanes may be shifted a little."
    if not any(known):
        return "All lanes go by the same clock."
    return f"The clocks of the processes agree to {duration(max(known, default=0.0))}."


def _embedded(data: object) -> str:
    """JSON that ends no script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
