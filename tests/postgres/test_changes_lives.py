"""Readers of changes that are lost, and servers that crash, between any two steps of a job."""

from __future__ import annotations

import copy
import random
import signal
from typing import Any

import pytest

from minirt.io import Split
from minirt_connectors.postgres import PostgresChangesSource, existing_rows, slot_reader
from tests.postgres.replica import SLOT, Replica, writing
from tests.postgres.server import Postgres

pytestmark = pytest.mark.postgres

LIVES, LIVES_OF_SERVER = 24, 8

Checkpoint = tuple[Any, Replica]
"""An offset, and what was made of all before it."""


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_repeated_wherever_readers_and_servers_end(
    server: Postgres, accounts_and_notes: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Reads are small, so that they end within transactions."""
    monkeypatch.setattr(slot_reader, "_CHANGES", 40)
    monkeypatch.setattr(slot_reader, "_LOG_BYTES", 50_000)
    monkeypatch.setattr(slot_reader, "_COUNT_FIRST", 7)
    monkeypatch.setattr(slot_reader, "_COUNT_MAX", 7)
    monkeypatch.setattr(existing_rows, "_BLOCKS", 1)
    chance = random.Random(seed)
    source = PostgresChangesSource(server.uri, "changes", slot=SLOT, poll="1ms")
    with writing(server, random.Random(seed), pause_s=0.01) as written:
        written.wait(5)
        [split] = source.plan_splits(1)
        stored: Checkpoint = None, Replica()
        for life in range(1, LIVES + 1):
            stored = live(source, split, stored, chance)
            if life % LIVES_OF_SERVER == 0:
                server.restart(chance.choice([signal.SIGINT, signal.SIGQUIT]))
    [(end,)] = server.rows("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")
    offset, replica = stored
    reader = source.open_split(split, offset)
    while reader.offset[2] < end:
        replica.apply(reader.read() or [])
    reader.close()
    assert replica.tables == replica.of(server)
    assert replica.updates > 50


def live(
    source: PostgresChangesSource, split: Split, stored: Checkpoint, chance: random.Random
) -> Checkpoint:
    """Read from a checkpoint on until the reader is lost; the last checkpoint, behind which the slot is."""
    offset, replica = stored[0], copy.deepcopy(stored[1])
    reader = source.open_split(split, offset)
    try:
        for _ in range(chance.randint(0, 60)):
            replica.apply(reader.read() or [])
            if chance.random() < 0.1:
                stored = reader.offset, copy.deepcopy(replica)
            if chance.random() < 0.05:
                source.committed({split.id: stored[0]})
    finally:
        reader.close()
    return stored
