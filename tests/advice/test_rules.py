"""The rules of advice, on figures made by hand: each disease has its advice, and health has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minirt.advice.figures import CheckpointTimes, Figures, figures
from minirt.advice.pressure import pressure
from minirt.advice.rules import advise
from minirt.monitoring.load import JobSetup, LoadEntry, OperatorLoad
from minirt.protocol.reports import CheckpointReport, SubtaskReport

SETUP = JobSetup("aligned", interval_s=10.0, timeout_s=600.0, debloat_s=None)


def operator(uid: str, inputs: tuple[str, ...], busy: float, soft: float = 0.0) -> OperatorLoad:
    return OperatorLoad(uid, uid, 4, inputs, busy, soft, 0.0, busy, 0.25, 1000.0, 1e5, 500_000)


SOURCE = operator("source", (), 100, soft=850)
SLOW = operator("slow", ("source",), 950)
SINK = operator("sink", ("slow",), 80)


def entries(
    *operators: OperatorLoad, count: int = 20, setup: JobSetup = SETUP
) -> tuple[LoadEntry, ...]:
    return tuple(LoadEntry(1000.0 + 10 * i, 1, setup, operators) for i in range(count))


def checkpoint(**stages: float) -> CheckpointTimes:
    times = {
        "start_delay_s": 0.01,
        "alignment_s": 0.01,
        "sync_s": 0.001,
        "async_s": 0.02,
        "answer_s": 0.0,
        "rest_s": 0.01,
    }
    times |= stages
    return CheckpointTimes(
        1, sum(times.values()), **times, slowest="slow (1/4)", state_bytes=10**7, in_flight_bytes=0
    )


def job(
    *operators: OperatorLoad,
    took: CheckpointTimes | None = None,
    setup: JobSetup = SETUP,
    count: int = 20,
) -> Figures:
    return Figures(
        setup, entries(*operators, count=count, setup=setup), (took or checkpoint(),) * 8
    )


def topics(known: Figures) -> list[str]:
    return [advice.topic for advice in advise(known)]


HEALTHY = job(operator("source", (), 300), operator("slow", ("source",), 400), SINK)
QUEUED = checkpoint(start_delay_s=24.0, alignment_s=6.0)


class TestHealthy:
    @pytest.mark.parametrize(
        "known",
        [
            HEALTHY,
            job(operator("source", (), 950)),  # A source may be what is busy.
            replace(HEALTHY, checkpoints=()),
            Figures(None, (), ()),
            replace(HEALTHY, checkpoints=(checkpoint(async_s=0.4),) * 8),
            job(SINK, took=checkpoint(start_delay_s=0.45)),
            job(SINK, took=checkpoint(start_delay_s=0.9)),  # Less than a tenth of the interval.
            job(operator("source", (), 500, soft=150), operator("slow", ("source",), 600)),
        ],
    )
    def test_silence(self, known):
        assert advise(known) == []

    def test_a_share_of_the_async_part_above_half_is_no_disease(self):
        assert advise(replace(HEALTHY, checkpoints=(checkpoint(async_s=0.3),) * 8)) == []


class TestBackpressure:
    def test_an_operator_that_is_too_slow_needs_more_subtasks(self):
        [advice] = advise(job(SOURCE, SLOW, SINK))
        assert advice.topic == "parallelism"
        # It is busy for 950 ms, and its input is held back by 85 %.
        assert "parallelism=37 for slow" in advice.option
        assert "source waits 850 ms of each second for room" in advice.evidence[0]
        assert "since 1970-01-01 00:16:40 UTC" in advice.evidence[1]

    def test_the_bottleneck_is_behind_the_last_one_that_waits(self):
        middle = operator("middle", ("source",), 100, soft=900)
        found = pressure(entries(SOURCE, middle, operator("slow", ("middle",), 990), SINK))
        assert found is not None
        assert found.bottleneck.operator == "slow"
        assert [one.operator for one in found.waiting] == ["source", "middle"]

    def test_since_when_it_lasts(self):
        calm = entries(replace(SOURCE, soft_ms=0.0), SLOW, count=30)
        load = tuple(
            replace(e, at=1000.0 + 10 * i) for i, e in enumerate((*calm, *entries(SOURCE, SLOW)))
        )
        found = pressure(load)
        assert found is not None
        assert (found.since, found.lasting) == (1300.0, False)
        assert pressure(entries(SOURCE, SLOW)).lasting

    def test_keys_with_most_of_the_records(self):
        skewed = replace(SLOW, busy_ms=400.0, busiest_ms=990.0, busiest_share=0.7)
        [advice] = advise(job(SOURCE, skewed, SINK))
        assert (advice.topic, advice.option) == ("skew", "")
        assert "70% of the records" in advice.evidence[-1]

    def test_one_key_with_nearly_all_of_them_needs_another_design(self):
        one_key = replace(SLOW, busy_ms=250.0, busiest_ms=990.0, busiest_share=0.97)
        assert topics(job(SOURCE, one_key)) == ["redesign"]

    def test_a_slow_subtask_with_no_more_records_than_others(self):
        lame = replace(SLOW, busy_ms=400.0, busiest_ms=990.0, busiest_share=0.25)
        assert topics(job(SOURCE, lame)) == ["slow subtask"]

    def test_an_entry_with_few_records_tells_little_of_how_they_are_dealt(self):
        lame = replace(SLOW, busy_ms=400.0, busiest_ms=990.0, busiest_share=0.25)
        few = replace(lame, busiest_share=1.0, records_in=2.0)
        some = [replace(e, operators=(SOURCE, few)) for e in entries(SOURCE, few, count=3)]
        known = job(SOURCE, lame)
        assert topics(replace(known, load=(*known.load[:-3], *some))) == ["slow subtask"]

    def test_a_slow_subtask_that_takes_records_alone_while_the_others_wait_for_their_frames(self):
        lame = replace(SLOW, busy_ms=400.0, busiest_ms=990.0)
        alone = replace(lame, busiest_share=1.0, records_in=48.0)
        others = replace(lame, busiest_share=0.05, records_in=960.0)
        [together] = entries(SOURCE, others, count=1)
        load = tuple(
            replace(together, at=1000.0 + i, operators=(SOURCE, others if i == 0 else alone))
            for i in range(8)
        )
        assert topics(replace(job(SOURCE, lame), load=load)) == ["slow subtask"]

    def test_records_that_emit_more_than_there_is_room_for(self):
        stuck = replace(SOURCE, soft_ms=0.0, hard_ms=900.0)
        assert topics(job(stuck, SLOW)) == ["parallelism", "large records"]


class TestBarriers:
    def test_barriers_that_wait_in_queues(self):
        found = advise(job(SOURCE, SLOW, SINK, took=QUEUED))
        assert [advice.topic for advice in found] == [
            *("parallelism", "debloat", "unaligned", "interval"),
        ]
        debloat, unaligned = found[1:3]
        assert debloat.option == "options.debloat=1s"
        assert "about 1 s instead of 30 s" in debloat.effect
        assert unaligned.option == "checkpointing.mode=unaligned"
        assert "about 31 ms instead of 30 s" in unaligned.effect
        assert "up to 1,500 kB in flight" in unaligned.effect
        assert "start delay: 80% of it, 24 s; alignment: 20%, 6 s" in unaligned.evidence[1]

    def test_pressure_that_comes_and_goes_asks_for_a_timeout(self):
        calm = entries(replace(SOURCE, soft_ms=0.0), SLOW, count=60)
        known = job(SOURCE, SLOW, took=QUEUED)
        assert "timeout" in topics(replace(known, load=(*calm, *known.load)))

    def test_with_debloating_there_is_unaligned_and_then_another_design(self):
        setup = replace(SETUP, debloat_s=1.0)
        found = topics(job(SOURCE, SLOW, took=QUEUED, setup=setup))
        assert found == ["parallelism", "unaligned", "redesign", "interval"]

    def test_barriers_that_wait_although_they_overtake_wait_for_calls(self):
        setup = replace(SETUP, mode="unaligned", debloat_s=1.0)
        found = advise(job(SOURCE, SLOW, took=QUEUED, setup=setup))
        assert [advice.topic for advice in found][1:3] == ["long calls", "redesign"]
        assert "slow (1/4) should do less in one call" in found[1].effect

    def test_barriers_that_may_not_overtake_want_queues_that_hold_less(self):
        setup = replace(SETUP, mode="unaligned")
        straight = replace(SLOW, straight=("source",), queued_bytes=600_000)
        found = advise(job(SOURCE, straight, SINK, took=QUEUED, setup=setup))
        assert [advice.topic for advice in found][1] == "debloat"
        assert found[1].option == "options.queues.slow.debloat=0.1s"
        assert "from source" in found[1].evidence[-1]
        none = replace(
            job(SOURCE, straight, setup=setup), checkpoints=(replace(QUEUED, failed=True),)
        )
        assert "debloat" in topics(none)
        little = replace(straight, queued_bytes=10)
        elsewhere = advise(job(SOURCE, little, SINK, took=QUEUED, setup=setup))
        assert [advice.topic for advice in elsewhere][1] == "long calls"

    @pytest.mark.parametrize("mode", ["aligned", "unaligned"])
    def test_a_process_that_cannot_answer_is_within_a_call_and_not_storing(self, mode):
        setup = replace(SETUP, mode=mode)
        found = advise(job(SINK, took=checkpoint(answer_s=30.0), setup=setup))
        assert [advice.topic for advice in found] == ["long calls", "interval"]
        assert "until the process could answer: 100% of it, 30 s" in found[0].evidence

    def test_a_record_that_is_stuck_is_said_once(self):
        stuck = replace(SOURCE, soft_ms=0.0, hard_ms=900.0)
        took = checkpoint(answer_s=3.0)
        setup = replace(SETUP, mode="unaligned")
        assert topics(job(stuck, SLOW, took=took, setup=setup)) == ["parallelism", "large records"]

    def test_a_job_none_of_whose_checkpoints_completes(self):
        cancelled = replace(checkpoint(), duration_s=8.0, failed=True)
        found = advise(replace(job(SOURCE, SLOW), checkpoints=(cancelled,)))
        assert [advice.topic for advice in found] == ["parallelism", "debloat", "unaligned"]
        assert "the longest was under way for 8 s" in found[1].evidence[0]
        assert advise(replace(HEALTHY, checkpoints=(cancelled,))) == []

    def test_nothing_about_barriers_where_storing_takes_the_time(self):
        found = topics(job(SINK, took=checkpoint(async_s=20.0)))
        assert found == ["storage", "interval"]


class TestTheRest:
    def test_a_synchronous_part_that_stops_the_job(self):
        assert topics(job(SINK, took=checkpoint(sync_s=3.0))) == ["state"]

    def test_checkpoints_without_a_pause(self):
        setup = replace(SETUP, interval_s=1.0)
        advice = advise(job(SINK, took=checkpoint(async_s=0.95), setup=setup))[-1]
        assert advice.topic == "interval"
        assert advice.option.startswith("checkpointing.interval=2s")

    def test_checkpoints_that_expire(self):
        expired = replace(checkpoint(), duration_s=600.0, failed=True, expired=True)
        known = replace(job(SOURCE, SLOW), checkpoints=(expired,) * 3)
        found = advise(known)
        assert [advice.topic for advice in found] == [
            *("parallelism", "debloat", "unaligned", "interval"),
        ]
        assert found[-1].evidence == ("3 of 3 expired after 600 s",)

    def test_every_advice_names_its_evidence_and_what_follows(self):
        for known in (job(SOURCE, SLOW, took=QUEUED), job(SINK, took=checkpoint(async_s=20.0))):
            for advice in advise(known):
                assert all(advice.evidence)
                assert advice.effect.endswith(".")


def test_a_part_that_was_stored_long_before_its_process_said_so_waited_for_a_call():
    quick = SubtaskReport("quick (1/1)", 0, 0, async_s=0.2, acknowledged_after_s=0.3)
    slow = SubtaskReport(
        "slow (1/2)", 1, 0, start_delay_s=0.3, async_s=0.1, acknowledged_after_s=1.6
    )
    report = CheckpointReport(1, 1, "aligned", "checkpoint", 0.0, 2.0, subtasks=(slow, quick))
    took = CheckpointTimes.of(report)
    assert took.slowest == "slow (1/2)"
    assert (took.answer_s, took.rest_s) == (pytest.approx(1.2), pytest.approx(0.4))


def test_figures_are_of_the_newest_generation_and_of_ordinary_checkpoints():
    old = entries(SOURCE, SLOW, count=3)
    new = tuple(replace(entry, generation=2, at=entry.at + 900) for entry in entries(SINK, count=2))
    reports = [
        CheckpointReport(1, 1, "aligned", "checkpoint", 0.0, 2.0),
        CheckpointReport(2, 2, "aligned", "savepoint", 0.0, 9.0),
    ]
    known = figures([*new, *old], reports)
    assert (known.load, known.duration_s) == (new, 2.0)
    assert LoadEntry.from_plain(new[0].to_plain()) == new[0]
