"""The drawing of an execution graph: nothing overlaps, every link goes to the right, all is well-formed."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree

import pytest

import minirt as rt
from minirt.graph.drawing import draw, lay_out
from minirt.graph.planner import build_execution_graph


def diamond() -> rt.Environment:
    env = rt.Environment("diamond & co", parallelism=2)
    numbers = env.source(rt.SequenceSource(10), uid="numbers")
    left = numbers.rebalance().map(str, name="left 'quoted'")
    right = numbers.rebalance().map(str, name="right " + "x" * 90)
    left.union(right).key_by(len).reduce(max).sink(rt.DiscardSink())
    numbers.map(str, parallelism=1).sink(rt.PrintSink())
    return env


def branches() -> rt.Environment:
    env = rt.Environment()
    numbers = env.source(rt.SequenceSource(10), uid="numbers")
    for name in ("one" + "x" * 90, "two"):
        mapped = numbers.map(str, name=name)
        mapped.sink(rt.DiscardSink(), uid=f"{name[:3]}-here")
        mapped.sink(rt.DiscardSink(), uid=f"{name[:3]}-there")
    return env


def shuffles() -> rt.Environment:
    env = rt.Environment()
    stream = env.source(rt.SequenceSource(10), parallelism=3)
    for _ in range(5):
        stream = stream.rebalance().map(str)
    stream.sink(rt.DiscardSink())
    return env


@pytest.mark.parametrize("job", [diamond, branches, shuffles])
def test_boxes_lie_apart_and_links_go_to_the_right(job):
    execution = build_execution_graph(job().graph())
    boxes = lay_out(execution)
    assert boxes.keys() == {vertex.id for vertex in execution.vertices}
    for one, other in itertools.combinations(boxes.values(), 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert apart_x or apart_y
    for link in execution.links:
        source, target = boxes[link.source], boxes[link.target]
        assert source.x + source.width < target.x


@pytest.mark.parametrize("job", [diamond, branches, shuffles])
def test_the_drawing_is_well_formed_and_names_every_operator(job):
    execution = build_execution_graph(job().graph())
    root = ElementTree.fromstring(draw(execution))
    titles = [found.text for found in root.iter("{http://www.w3.org/2000/svg}title")]
    nodes = [node for vertex in execution.vertices for node in vertex.operators]
    assert sorted(map(str, titles)) == sorted(node.label for node in nodes)
    width = float(root.attrib["width"])
    for box in lay_out(execution).values():
        assert box.x + box.width <= width


def test_branches_are_indented():
    execution = build_execution_graph(branches().graph())
    root = ElementTree.fromstring(draw(execution))
    texts = root.iter("{http://www.w3.org/2000/svg}text")
    by_place = [(float(text.attrib["x"]), str(text.text)) for text in texts]
    [source, *fed, _] = [(x - by_place[0][0], text.partition(" ")[0]) for x, text in by_place]
    assert source == (0, "SequenceSource")
    assert [kind for _, kind in fed] == ["-"] * 6
    one, deeper = fed[0][0], fed[1][0]
    assert [x for x, _ in fed] == [one, deeper, deeper] * 2
    assert deeper > one == 0
