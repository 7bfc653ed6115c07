"""What functions of a job would change in the program is said, by the name of the variable."""

from __future__ import annotations

import functools
import gettext
import logging
from collections import Counter, deque

import pytest

from minirt import DiscardSink, Environment, KeyedProcess, SequenceSource
from minirt.api.changed_variables import changed_variables

SEEN: list[int] = []
COUNTS: dict[int, int] = {}
RECENT: deque[int] = deque()
TOTAL = 0
WORDS = ("a", "b")


class Settings:
    factor = 1


SETTINGS = Settings()


def appends(record):
    SEEN.append(record)
    return record


def counts(record):
    COUNTS[record % 2] = COUNTS.get(record % 2, 0) + 1
    return record


def counts_in_place(record):
    if record:
        COUNTS[record % 2] += 1
    return record


def deletes(record):
    del COUNTS[record]


def assigns(record):
    global TOTAL
    TOTAL += record
    return record


def sets_an_attribute(record):
    SETTINGS.factor = record
    return record


def in_a_comprehension(records):
    return [RECENT.append(record) for record in records]


def in_an_inner_function(record):
    def inner():
        COUNTS.update({record: 1})

    inner()


def reads(record):
    """Nothing of the program changes: what it reads, and what is made in the call."""
    own = list(SEEN)
    own.append(COUNTS.get(record, len(WORDS)) + SETTINGS.factor)
    table = {}
    table[record] = own
    table[record].append(SEEN[0] if SEEN else TOTAL)
    return table if record in COUNTS else sorted(table)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (appends, ["SEEN"]),
        (lambda record: SEEN.append(record) or record, ["SEEN"]),
        (counts, ["COUNTS"]),
        (counts_in_place, ["COUNTS"]),
        (deletes, ["COUNTS"]),
        (assigns, ["TOTAL"]),
        (sets_an_attribute, ["SETTINGS"]),
        (in_a_comprehension, ["RECENT"]),
        (in_an_inner_function, ["COUNTS"]),
        (reads, []),
        (lambda record: record.update(a=1), []),
    ],
)
def test_the_variables_that_a_function_changes(function, names):
    assert changed_variables(function) == names


def test_the_variables_of_an_outer_function():
    total, seen, by_key = 0, set(), Counter()

    def adds(record):
        nonlocal total
        total += record
        seen.add(record)
        by_key[record] += 1
        return total

    def reads_only(record):
        own = set(seen)
        own.add(record)
        return own, total

    assert changed_variables(adds) == ["by_key", "seen", "total"]
    assert changed_variables(reads_only) == []


class Remembers(KeyedProcess):
    def __init__(self):
        self.own = []

    def process(self, record, ctx):
        self.own.append(record)
        SEEN.append(record)


def two(first, record):
    COUNTS[first] = record
    return record


def test_a_job_says_it_once_for_each_variable(caplog):
    env = Environment()
    numbers = env.source(SequenceSource(3), uid="numbers")
    added = numbers.map(appends, uid="added").map(functools.partial(two, 1), uid="two")
    added.key_by(lambda n: n).process(Remembers(), uid="remembers").sink(DiscardSink())
    with caplog.at_level(logging.WARNING, "minirt.api"):
        env.execute(runner="inline")
        env.plan()
    said = [record.getMessage().partition(", of")[0] for record in caplog.records]
    assert said == [
        "map: appends (uid added): appends changes variable 'SEEN'",
        "map: two (uid two): two changes variable 'COUNTS'",
        "process: Remembers (uid remembers): Remembers.process changes variable 'SEEN'",
    ]


class Remembering:
    def __init__(self):
        self.known = {}

    def __call__(self, record):
        if record not in self.known:
            self.known[record] = -record
        return self.known[record]


@functools.cache
def squared(record):
    return record * record


@pytest.mark.parametrize("cached", [squared, lambda record: squared(record), Remembering()])
def test_a_cache_where_the_warning_wants_it_gets_none(cached, caplog):
    env = Environment()
    env.source(SequenceSource(3)).map(cached).sink(DiscardSink())
    env.plan()
    assert not caplog.records


def test_functions_of_installed_packages_are_not_looked_at(caplog):
    assert changed_variables(gettext.textdomain) == ["_current_domain"]
    env = Environment()
    env.source(SequenceSource(3)).map(gettext.textdomain).sink(DiscardSink())
    env.plan()
    assert not caplog.records
