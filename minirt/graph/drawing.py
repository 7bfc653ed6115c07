"""The execution graph as a drawing: vertices in columns by their distance from the sources, as SVG.

Lines and text have the colour of the text around the drawing, so that it goes with light and dark pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from minirt.graph.execution import ExecutionGraph, Link, Vertex

_CHARACTER = 7.2
"""The width of a character of the font below, in pixels."""
_LINE = 17
_PAD = 12
_BETWEEN_COLUMNS = 96
_BETWEEN_ROWS = 22
_NAME_MAX = 34
_FONT = "font-family='ui-monospace,monospace' font-size='12'"


@dataclass(frozen=True, slots=True)
class Box:
    """Where a vertex is drawn, in pixels."""

    vertex: Vertex
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw(execution: ExecutionGraph) -> str:
    """An SVG element with a box for each vertex, which lists its operators, and a line for each link."""
    boxes = lay_out(execution)
    width = max(box.x + box.width for box in boxes.values()) + 2
    height = max(box.y + box.height for box in boxes.values()) + 2
    return "".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' "
            f"width='{width:g}' style='max-width:100%;height:auto;color:inherit' role='img' "
            f"aria-label='{escape(f'the graph of job {execution.name}', quote=True)}' {_FONT}>",
            *(part for link in execution.links for part in _line(link, boxes)),
            *(part for box in boxes.values() for part in _box(box)),
            "</svg>",
        ]
    )


def lay_out(execution: ExecutionGraph) -> dict[int, Box]:
    """The place of each vertex, by its id: right of all that lead to it, below others of its column."""
    columns: dict[int, list[Vertex]] = defaultdict(list)
    column_of: dict[int, int] = {}
    for vertex in execution.vertices:
        before = [link.source for link in execution.links if link.target == vertex.id]
        column_of[vertex.id] = max((column_of[id] + 1 for id in before), default=0)
        columns[column_of[vertex.id]].append(vertex)
    heights = {
        column: sum(_height(vertex) for vertex in vertices) + _BETWEEN_ROWS * (len(vertices) - 1)
        for column, vertices in columns.items()
    }
    highest, boxes, x = max(heights.values()), {}, 1.0
    for column in sorted(columns):
        width = max(_width(vertex) for vertex in columns[column])
        y = 1 + (highest - heights[column]) / 2
        for vertex in columns[column]:
            boxes[vertex.id] = Box(vertex, x, y, width, _height(vertex))
            y += _height(vertex) + _BETWEEN_ROWS
        x += width + _BETWEEN_COLUMNS
    return boxes


def _names(vertex: Vertex) -> list[str]:
    """The operators as they are listed, each behind its margin."""
    names = (node.name for node in vertex.operators)
    short = [name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…" for name in names]
    return [f"{margin}{name}" for margin, name in zip(vertex.margins, short, strict=True)]


def _width(vertex: Vertex) -> float:
    return max(len(text) for text in [*_names(vertex), _size(vertex)]) * _CHARACTER + 2 * _PAD


def _height(vertex: Vertex) -> float:
    return (len(vertex.operators) + 1) * _LINE + _PAD


def _size(vertex: Vertex) -> str:
    return f"{vertex.parallelism} subtask{'s' * (vertex.parallelism != 1)}"


def _box(box: Box) -> Iterator[str]:
    yield (
        f"<rect x='{box.x:g}' y='{box.y:g}' width='{box.width:g}' height='{box.height:g}' rx='5' "
        "fill='currentColor' fill-opacity='0.06' stroke='currentColor' stroke-opacity='0.5'/>"
    )
    y = box.y + _PAD / 2
    for name, node in zip(_names(box.vertex), box.vertex.operators, strict=True):
        y += _LINE
        text = name.lstrip()
        x = box.x + _PAD + (len(name) - len(text)) * _CHARACTER
        yield (
            f"<text x='{x:g}' y='{y - 4:g}' fill='currentColor'>{escape(text)}"
            f"<title>{escape(node.label)}</title></text>"
        )
    yield (
        f"<text x='{box.x + _PAD:g}' y='{y + _LINE - 4:g}' fill='currentColor' "
        f"fill-opacity='0.6'>{_size(box.vertex)}</text>"
    )


def _line(link: Link, boxes: dict[int, Box]) -> Iterator[str]:
    source, target = boxes[link.source], boxes[link.target]
    x1, x2 = source.x + source.width, target.x
    bend = (x2 - x1) / 2
    yield (
        f"<path d='M{x1:g} {source.middle:g}C{x1 + bend:g} {source.middle:g} {x2 - bend:g} "
        f"{target.middle:g} {x2:g} {target.middle:g}' fill='none' stroke='currentColor' "
        "stroke-opacity='0.5'/>"
    )
    label = link.kind if link.tag is None else f"{link.kind}, {link.tag}"
    x = x2 - _BETWEEN_COLUMNS / 2
    y = target.middle + (source.middle - target.middle) * _SHARE - 5
    yield (
        f"<text x='{x:g}' y='{y:g}' text-anchor='middle' fill='currentColor' fill-opacity='0.6' "
        f"font-size='11'>{escape(label)}</text>"
    )


_SHARE = 0.5
"""Where on its way a line is labelled, from its target."""
