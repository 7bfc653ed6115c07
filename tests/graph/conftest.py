"""Job graphs written by hand."""

from __future__ import annotations

import pytest

from minirt import Sink, Source
from minirt.graph.job_graph import Edge, JobGraph, OperatorNode
from minirt.operators.map import CoMapSpec, MapSpec
from minirt.operators.sink import SinkSpec
from minirt.operators.source import SourceSpec
from minirt.partitionings import Forward


class Anywhere(Source):
    def plan_splits(self, parallelism):
        raise NotImplementedError

    def open_split(self, split, offset):
        raise NotImplementedError


class Nowhere(Sink):
    def open_writer(self, context):
        raise NotImplementedError


SPECS = {
    "source": SourceSpec(Anywhere()),
    "map": MapSpec(str),
    "co_map": CoMapSpec(str, str),
    "sink": SinkSpec(Nowhere()),
}


def _node(uid, parallelism=2, *, chain=True, max_parallelism=128):
    kind = uid.rstrip("0123456789")
    return OperatorNode(uid, uid, SPECS[kind], parallelism, max_parallelism, chain)


def _edge(source, target, partitioning=None, *, into=0, tag=None):
    return Edge(source, target, partitioning or Forward(), into, tag)


def _job(nodes, edges):
    nodes = [node if isinstance(node, OperatorNode) else _node(node) for node in nodes]
    return JobGraph("job", {node.uid: node for node in nodes}, tuple(edges))


@pytest.fixture(scope="session")
def node():
    """`node("map2", parallelism)`: the uid without its digits is the kind of operator."""
    return _node


@pytest.fixture(scope="session")
def edge():
    """`edge("source", "map", partitioning=Forward(), into=0, tag=None)`."""
    return _edge


@pytest.fixture(scope="session")
def job():
    """`job([uids or nodes], [edges])`."""
    return _job
