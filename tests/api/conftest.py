"""Ends for jobs that are written down but never run."""

from __future__ import annotations

import pytest

from minirt import Environment, Sink, Source


class Numbers(Source):
    def __init__(self, schema=None, side_errors=False, problem=None):
        self._schema = schema
        self.side_errors = side_errors
        self.problem = problem

    def plan_splits(self, parallelism):
        raise NotImplementedError

    def open_split(self, split, offset):
        raise NotImplementedError

    def schema(self):
        return self._schema

    def validate(self):
        if self.problem is not None:
            raise self.problem


class Nowhere(Sink):
    def __init__(self, problem=None):
        self.problem = problem

    def open_writer(self, context):
        raise NotImplementedError

    def validate(self):
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def numbers():
    """A source class: `numbers(schema=..., side_errors=..., problem=...)`."""
    return Numbers


@pytest.fixture
def nowhere():
    """A sink class: `nowhere(problem=...)`."""
    return Nowhere


@pytest.fixture
def env():
    return Environment(parallelism=2)


@pytest.fixture
def stream(env):
    """The stream of a source of unknown schema."""
    return env.source(Numbers(), uid="numbers")
