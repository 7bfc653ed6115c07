"""Messages between processes: what is minirt's own goes by name, what is the user's goes by value."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotDeclined
from minirt.protocol.manifest import SinkHandles
from minirt.protocol.subtask_commands import TriggerCheckpoint
from minirt.runtime.control.messages import Heartbeat, SentCommand, Together
from minirt.runtime.control.packing import packed

TRIGGER = SentCommand(TriggerCheckpoint(1, Barrier(3, "aligned", 1.5), pause=False), 2.0)
DECLINED = SnapshotDeclined(1, 3, SubtaskId(1, 0), "full", ())


@pytest.mark.parametrize("message", [TRIGGER, DECLINED, Together((DECLINED, DECLINED))])
def test_own_messages_arrive_and_need_no_look_at_each_class(message: Any) -> None:
    assert pickle.loads(packed(message)) == message
    assert len(packed(message)) <= len(pickle.dumps(message))


@functools.cache
def cached(number: int) -> int:
    return number


def test_what_is_cached_by_the_user_goes_by_value() -> None:
    """Where the program cannot be imported, its name says nothing."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        assert pickle.loads(packed(cached)) is not cached
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_figures_arrive_with_what_has_changed_since_they_were_made() -> None:
    figures = SubtaskMetrics()
    figures.records_in = 7
    beat = pickle.loads(packed(Heartbeat(1, 2, {SubtaskId(0, 1): figures})))
    assert beat.metrics[SubtaskId(0, 1)].records_in == 7


@dataclass(frozen=True, slots=True)
class HasMore:
    """Its constructor does not take all that it holds."""

    shown: int
    hidden: int = field(init=False, default=0)


@dataclass(frozen=True, slots=True)
class Counts:
    """Its constructor stores something other than what it is given."""

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", self.count + 1)


HasMore.__module__ = Counts.__module__ = "minirt.made_by_test"


def test_a_dataclass_whose_constructor_does_not_take_all_fields_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "minirt.made_by_test", sys.modules[__name__])
    held = HasMore(1)
    object.__setattr__(held, "hidden", 2)
    assert pickle.loads(packed(held)) == held
    counts = Counts(1)
    assert pickle.loads(packed(counts)).count == counts.count == 2


SCRIPT = """
class Handle:
    def __init__(self, number):
        self.number = number

def double(number):
    return 2 * number
"""

READER = """
import pickle, sys
handle, double = pickle.load(sys.stdin.buffer)
print(handle.number, double(4))
"""


def test_classes_and_functions_of_the_users_program_arrive_where_it_cannot_be_imported(
    tmp_path: Path,
) -> None:
    """Neither side imports the program for it: as a script it would start the job once more."""
    namespace: dict[str, Any] = {"__name__": "job_of_a_user"}
    exec(SCRIPT, namespace)
    imported = tmp_path / "imported"
    (tmp_path / "job_of_a_user.py").write_text(f"open({str(imported)!r}, 'w').close()\n{SCRIPT}")
    sys.path.insert(0, str(tmp_path))
    try:
        handles = SinkHandles("out", 3, 0, (namespace["Handle"](7),))
        message = packed(SnapshotDeclined(1, 3, SubtaskId(1, 0), None, (handles,)))
        sent = packed((namespace["Handle"](7), namespace["double"]))
    finally:
        sys.path.remove(str(tmp_path))
    assert not imported.exists()
    assert pickle.loads(message).handles[0].handles[0].number == 7
    there = subprocess.run(
        [sys.executable, "-c", READER],
        input=sent,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": ""},
        check=True,
    )
    assert there.stdout.split() == [b"7", b"8"]


def test_what_cannot_travel_is_refused_as_cloudpickle_refuses_it() -> None:
    with pytest.raises(TypeError) as expected:
        cloudpickle.dumps(threading.Lock())
    with pytest.raises(TypeError, match="lock") as refused:
        packed((DECLINED, threading.Lock()))
    assert str(refused.value) == str(expected.value)
