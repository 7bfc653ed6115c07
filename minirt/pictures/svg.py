"""Pictures as SVG. Colours are classes: a style sheet gives them, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from textwrap import wrap

from minirt.pictures.critical_path import critical_path
from minirt.pictures.layout import (
    AXIS_HEIGHT,
    BAR_HEIGHT,
    GROUP_HEIGHT,
    LABEL_WIDTH,
    Area,
    LaneBox,
    Layout,
    Line,
    folded,
    lay_out,
)
from minirt.pictures.stage import BOX_HEIGHT, BOX_WIDTH, Queue, Stage
from minirt.pictures.timeline import Timeline
from minirt.pictures.words import heading, verdict

LEGEND = (
    ("sync", "synchronous part"),
    ("async", "asynchronous part"),
    ("waiting", "waits"),
    ("queue", "barrier in an input queue"),
    ("blocked", "channel blocked"),
    ("capture", "data captured"),
    ("path", "critical path"),
)
LEGEND_OF_LINE = (
    ("sync", "local snapshot"),
    ("waiting", "waits"),
    ("capture", "data in transit"),
    ("async", "what is in transit is stored"),
    ("path", "critical path"),
)
"""Of a checkpoint that is made of local snapshots."""
_LINE_MAX, _LINE_HEIGHT = 165, 18
"""Characters of a line of the verdict, and pixels from one to the next."""
_LABEL_MAX = 30
"""Characters of a lane's name, so that it ends ahead of the plot, in bold as well."""


def asset(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("minirt.pictures") / "assets" / name).read_text("utf-8")


def standalone(timeline: Timeline) -> str:
    """An SVG file: title, verdict, legend, and the lanes that matter."""
    layout = folded(lay_out(timeline))
    said = wrap(verdict(timeline, critical_path(timeline)), _LINE_MAX)
    below = _LINE_HEIGHT * (len(said) - 1)
    head = 72 + below
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width:g} '
            f'{layout.height + head:g}" width="{layout.width:g}" height="{layout.height + head:g}" '
            f'role="img" class="alone" aria-label="{escape(heading(timeline))}">',
            f"<style>{asset('picture.css')}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            f'<text class="title" x="12" y="22">{escape(heading(timeline))}</text>',
            *(
                f'<text x="12" y="{42 + _LINE_HEIGHT * place}">{escape(line)}</text>'
                for place, line in enumerate(said)
            ),
            f'<g transform="translate(0,{below})">',
            *_legend(legend_of([timeline])),
            "</g>",
            f'<g transform="translate(0,{head})">',
            *_body(layout),
            "</g>",
            "</svg>",
        ]
    )


def of_timeline(layout: Layout, title: str) -> str:
    """The lanes for a page, all of them: its script folds and animates them."""
    return "\n".join(
        [
            f'<svg class="timeline" viewBox="0 0 {layout.width:g} {layout.height:g}" role="img" '
            f'aria-label="{escape(title)}">',
            *_body(layout),
            '<g class="dots"></g>',
            f'<line class="cursor" x1="0" x2="0" y1="{AXIS_HEIGHT - 6}" y2="{layout.height:g}"/>',
            "</svg>",
        ]
    )


def of_stage(drawn: Stage, title: str) -> str:
    """Boxes and queues, before the checkpoint begins."""
    return "\n".join(
        [
            f'<svg class="stage" viewBox="0 0 {drawn.width:g} {drawn.height:g}" role="img" '
            f'aria-label="{escape(title)}" style="max-width:{drawn.width:g}px">',
            *(_queue(queue) for queue in drawn.queues),
            *(
                f'<g class="box" transform="translate({box.x:g},{box.y:g})">'
                f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
                f'<text x="{BOX_WIDTH / 2:g}" y="19" text-anchor="middle">'
                f"{escape(_shortened(box.name, 20))}</text><title>{escape(box.name)}</title></g>"
                for box in drawn.boxes
            ),
            '<g class="dots"></g>',
            "</svg>",
        ]
    )


def _body(layout: Layout) -> Iterable[str]:
    bottom = layout.height
    for tick in layout.ticks:
        at = f"{tick.x:.2f}"
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{AXIS_HEIGHT - 8}" y2="{bottom:g}"/>'
        yield f'<text class="tick" x="{at}" y="12" text-anchor="middle">{escape(tick.label)}</text>'
    by_lane: dict[int, list[Area]] = {}
    for area in layout.areas:
        by_lane.setdefault(area.lane, []).append(area)
    for box in layout.lanes:
        yield from _lane(box, by_lane.get(box.lane, []))
    tops = {box.lane: box.y for box in layout.lanes}
    for line in sorted(layout.lines, key=lambda one: one.on_path):
        yield _line(line, tops)
    marks = (
        (layout.begun_x, "begun"),
        (layout.completed_x, "completed"),
        (layout.committed_x, "committed"),
    )
    for x, name in marks:
        if x is not None:
            yield (
                f'<line class="mark {name}" x1="{x:.2f}" x2="{x:.2f}" y1="{AXIS_HEIGHT - 8}" '
                f'y2="{bottom:g}"><title>{name}</title></line>'
            )
    for number, group in enumerate(layout.groups):
        more = f", {group.folded} more" if group.folded else ""
        words = _shortened(f"{group.name}, {group.lanes} subtasks{more}", 90)
        mark = '<tspan class="mark">▸</tspan> ' if group.folded else ""
        yield (
            f'<g class="group" data-group="{number}" data-folded="{group.folded}" '
            f'transform="translate(0,{group.y:g})"><text x="6" y="{GROUP_HEIGHT - 6}">{mark}'
            f"{escape(words)}</text></g>"
        )


def _lane(box: LaneBox, areas: Iterable[Area]) -> Iterable[str]:
    path = " on-path" if box.on_path else ""
    yield (
        f'<g class="lane{path}" data-lane="{box.lane}" data-group="{box.group}" '
        f'data-height="{box.height:g}" data-folded="{int(box.folded)}" '
        f'transform="translate(0,{box.y:g})">'
        f'<text x="14" y="{BAR_HEIGHT - 3}">{escape(_shortened(box.name, _LABEL_MAX))}'
        f"<title>{escape(box.name)}</title></text>"
        f'<line class="base" x1="{LABEL_WIDTH}" x2="100%" y1="{BAR_HEIGHT / 2}" y2="{BAR_HEIGHT / 2}"/>'
    )
    for area in areas:
        yield (
            f'<rect class="{area.kind}" x="{area.x:.2f}" y="{area.y:g}" width="{area.width:.2f}" '
            f'height="{area.height:g}"><title>{escape(area.title)}</title></rect>'
        )
    yield "</g>"


def _line(line: Line, tops: dict[int, float]) -> str:
    path = " on-path" if line.on_path else ""
    return (
        f'<line class="barrier{path}" data-from="{line.from_lane}" data-to="{line.to_lane}" '
        f'data-from-y="{line.from_y:g}" data-to-y="{line.to_y:g}" x1="{line.x1:.2f}" x2="{line.x2:.2f}" '
        f'y1="{tops[line.from_lane] + line.from_y:g}" y2="{tops[line.to_lane] + line.to_y:g}">'
        f"<title>{escape(line.title)}</title></line>"
    )


def _queue(queue: Queue) -> str:
    x, y = (queue.x1 + queue.x2) / 2, (queue.y1 + queue.y2) / 2
    return (
        '<g class="queue">'
        f'<line class="out" x1="{queue.x1:g}" y1="{queue.y1:g}" x2="{x:g}" y2="{y:g}"/>'
        f'<line class="in" x1="{x:g}" y1="{y:g}" x2="{queue.x2:g}" y2="{queue.y2:g}"/></g>'
    )


def legend_of(timelines: Iterable[Timeline]) -> dict[str, str]:
    """What the colours mean in these pictures, which may be of both families."""
    legend: dict[str, str] = {}
    for drawn in timelines:
        for kind, words in LEGEND_OF_LINE if drawn.is_line else LEGEND:
            known = legend.setdefault(kind, words)
            legend[kind] = known if words in known.split(" or ") else f"{known} or {words}"
    return legend


def _legend(legend: Mapping[str, str]) -> Iterable[str]:
    x = 12.0
    for kind, words in legend.items():
        yield f'<rect class="{kind}" x="{x:g}" y="54" width="14" height="9"/>'
        yield f'<text class="small" x="{x + 19:g}" y="62">{words}</text>'
        x += 36 + 6.2 * len(words)


def _shortened(text: str, most: int) -> str:
    """The end names the subtask."""
    if len(text) <= most:
        return text
    keep = most // 2
    return f"{text[: most - keep - 1]}…{text[-keep:]}"
