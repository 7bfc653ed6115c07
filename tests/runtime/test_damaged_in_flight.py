"""In-flight data on storage that is damaged, or that is to be given up: what is said, what is done."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.data.codec import RowCodec
from minirt.errors import ConfigurationError, CorruptCheckpointError
from minirt.protocol.manifest import Manifest
from minirt.protocol.restore_options import RestoreOptions
from minirt.runtime.channels.batches import batch_of
from minirt.runtime.input.in_flight import stored_frames
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from minirt.testing import TransactionalSink
from tests.runtime.stepped import ONE_RESTART, SteppedJob

COUNT = 300
LATEST = RestoreOptions("latest")


def remainder(n: int) -> int:
    return n % 5


def storage_of(folder: Path) -> CheckpointStorage:
    return CheckpointStorage(ObjectStore(str(folder)), 0)


def env_of(sink: rt.Sink) -> rt.Environment:
    env = rt.Environment(parallelism=2)
    numbers = env.source(rt.SequenceSource(COUNT, splits=2), uid="numbers")
    numbers.key_by(remainder).reduce(max, uid="largest").forward(ordered=False).sink(
        sink, uid="out", chain=False
    )
    return env


def env_without_reduce(sink: rt.Sink) -> rt.Environment:
    env = rt.Environment(parallelism=2)
    numbers = env.source(rt.SequenceSource(COUNT, splits=2), uid="numbers")
    numbers.forward(ordered=False).sink(sink, uid="out", chain=False)
    return env


@dataclass
class Stored:
    """A job that has stopped behind two checkpoints; the second has full queues."""

    folder: Path
    sink: TransactionalSink
    first: Manifest
    second: Manifest

    @property
    def part(self) -> Path:
        """A file of in-flight data."""
        return self.folder / str(self.second.in_flight[0].stored.path)

    @property
    def records(self) -> int:
        """How many were in flight."""
        parts = [
            storage_of(self.folder).read_snapshot(p.stored, self.second.key)
            for p in self.second.in_flight
        ]
        frames = [
            f
            for part in parts
            for data in part.values()
            for f in stored_frames(io.BytesIO(data), "")
        ]
        return sum(len(batch_of(frame, RowCodec())) for frame in frames)

    @property
    def bytes(self) -> int:
        return sum(data.bytes for part in self.second.in_flight for data in part.channels)

    def restored(self, **options: Any) -> SteppedJob:
        given = RestoreOptions(**{"which": "latest", **options})
        return SteppedJob(env_of(self.sink), self.folder, restore=given, restart=ONE_RESTART)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    sink = TransactionalSink()
    job = SteppedJob(env_of(sink), tmp_path)
    job.work(10)
    first = job.checkpoint()
    job.clog()
    second = job.checkpoint()
    assert (first.checkpoint_id, second.checkpoint_id) == (1, 2)
    assert len(second.in_flight) > 1
    return Stored(tmp_path, sink, first, second)


def truncate(stored: Stored) -> None:
    stored.part.write_bytes(stored.part.read_bytes()[:-1])


def flip_a_bit(stored: Stored) -> None:
    data = bytearray(stored.part.read_bytes())
    data[-5] ^= 1
    stored.part.write_bytes(data)


def remove(stored: Stored) -> None:
    stored.part.unlink()


def put_another_there(stored: Stored) -> None:
    other = stored.folder / str(stored.second.in_flight[1].stored.path)
    stored.part.write_bytes(other.read_bytes())


Damage = Callable[[Stored], None]
DAMAGES: list[Damage] = [truncate, flip_a_bit, remove, put_another_there]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_with_checkpoint_file_and_both_ways_out(
    stored: Stored, damage: Damage
) -> None:
    damage(stored)
    with pytest.raises(CorruptCheckpointError, match="checkpoint 2 cannot be restored") as caught:
        stored.restored().finish()
    assert caught.value.path == str(stored.part)
    assert str(stored.part) in str(caught.value)
    assert "allow_restore_fallback=True" in str(caught.value)
    assert "ignore_in_flight_data_of=2" in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_can_be_given_up(
    stored: Stored, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(stored)
    with caplog.at_level(logging.WARNING, "minirt.coordinator"):
        stored.restored(ignore_in_flight_data_of=2).finish()
    assert f"{stored.bytes} bytes of records in " in caplog.text
    assert 0 < len(stored.sink.rows) < COUNT


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_can_be_passed_over(
    stored: Stored, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(stored)
    stored.restored(allow_fallback=True).finish()
    assert len(stored.sink.rows) == COUNT


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_passed_over_without_a_restart(stored: Stored, damage: Damage) -> None:
    damage(stored)
    options = RestoreOptions("latest", allow_fallback=True)
    none = rt.Restart.none()
    SteppedJob(env_of(stored.sink), stored.folder, restore=options, restart=none).finish()
    assert len(stored.sink.rows) == COUNT


def test_without_an_older_one_the_damage_is_told(stored: Stored) -> None:
    flip_a_bit(stored)
    next(stored.folder.glob("manifests/chk-00000001-*")).unlink()
    with pytest.raises(CorruptCheckpointError, match=r"none of 1 .*checkpoint 2.*fails") as caught:
        stored.restored(allow_fallback=True).finish()
    assert "allow_restore_fallback" not in str(caught.value)


def test_a_checkpoint_that_is_passed_over_is_logged(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    remove(stored)
    with caplog.at_level(logging.WARNING, "minirt.coordinator"):
        stored.restored(allow_fallback=True)
    assert "passed over: checkpoint 2 cannot be restored, missing" in caplog.text
    assert str(stored.part) in caplog.text


def test_a_checkpoint_that_was_asked_for_gives_way_to_an_older_one_as_well(stored: Stored) -> None:
    remove(stored)
    with pytest.raises(CorruptCheckpointError, match="chk-00000001"):
        stored.restored(which=2)
    stored.restored(which=2, allow_fallback=True).finish()
    assert len(stored.sink.rows) == COUNT


def test_a_damaged_first_checkpoint_has_no_fallback(stored: Stored) -> None:
    part = stored.folder / str(next(stored.first.stored()).path)
    part.unlink()
    with pytest.raises(CorruptCheckpointError, match=r"checkpoint 1 .*there is no older one"):
        stored.restored(which=1)


def test_exactly_the_records_in_flight_are_lost(stored: Stored) -> None:
    in_flight = stored.records
    stored.restored(ignore_in_flight_data_of=2).finish()
    assert len(stored.sink.rows) == COUNT - in_flight < COUNT


def test_a_later_checkpoint_keeps_its_own_records_in_flight(stored: Stored) -> None:
    in_flight = stored.records
    job = stored.restored(ignore_in_flight_data_of=2)
    job.clog()
    assert job.checkpoint().in_flight
    job.crash()
    job.finish()
    assert len(stored.sink.rows) == COUNT - in_flight


def test_a_restart_from_the_same_checkpoint_gives_the_same_records_up(stored: Stored) -> None:
    in_flight = stored.records
    job = stored.restored(ignore_in_flight_data_of=2)
    job.work(5)
    job.crash()
    job.finish()
    assert len(stored.sink.rows) == COUNT - in_flight


def test_the_log_tells_nothing_when_nothing_is_lost(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        stored.restored().finish()
    assert caplog.text == ""
    assert len(stored.sink.rows) == COUNT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"ignore_in_flight_data_of": 1},
            'of=1 has no effect: restore="latest" chose checkpoint 2',
        ),
        (
            {"which": 1, "ignore_in_flight_data_of": 2},
            "of=2 has no effect: restore=1 chose checkpoint 1",
        ),
        (
            {"which": None, "ignore_in_flight_data_of": 2},
            "ignore_in_flight_data_of=2 has no effect with restore=None",
        ),
        ({"ignore_in_flight_data_of": 0}, "whole number above 0"),
        ({"ignore_in_flight_data_of": True}, "whole number above 0"),
    ],
)
def test_giving_up_what_is_not_restored_is_refused(
    stored: Stored, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        stored.restored(**options)


def test_giving_up_what_is_not_there_is_refused(tmp_path: Path) -> None:
    sink = TransactionalSink()
    with pytest.raises(ConfigurationError, match=r"of=1 has no effect.* chose checkpoint none"):
        SteppedJob(env_of(sink), tmp_path, restore=RestoreOptions("latest", False, False, 1))
    SteppedJob(env_of(sink), tmp_path).checkpoint()
    with pytest.raises(ConfigurationError, match="checkpoint 1 holds no in-flight data"):
        SteppedJob(env_of(sink), tmp_path, restore=RestoreOptions("latest", False, False, 1))


def test_a_job_that_lost_an_operator_must_be_told_to_drop_state_and_records(
    stored: Stored,
) -> None:
    env, in_flight = env_without_reduce(stored.sink), stored.records

    def restored(**options: Any) -> SteppedJob:
        return SteppedJob(env, stored.folder, restore=RestoreOptions("latest", **options))

    with pytest.raises(ConfigurationError, match=r"holds state of 'largest'.*allow_non_restored"):
        restored()
    with pytest.raises(
        ConfigurationError, match=r"'largest > out:0'.*'numbers > largest:0'"
    ) as lost:
        restored(allow_non_restored_state=True)
    assert "ignore_in_flight_data_of=2" in str(lost.value)
    restored(allow_non_restored_state=True, ignore_in_flight_data_of=2).finish()
    assert len(stored.sink.rows) == COUNT - in_flight
