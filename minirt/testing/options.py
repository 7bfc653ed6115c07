"""The options of a simulated job: drawn from the seed, and at the pace of its simulated clock."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from minirt.config import LATENCY_INTERVAL_S_MIN, Limits, Options

# In rounds: as many steps as give each subtask, worker and channel one turn on average.
_HEARTBEAT_ROUNDS = 12
_PATIENCE_ROUNDS = 150
"""How long the coordinator waits for a silent worker: longer than one that hangs for a while."""


def at_pace(options: Options, round_s: float, subtasks: int) -> Options:
    """Waits in proportion to the time that a round takes.

    The coordinator handles one event in its turn, so it hears less often of each of many workers, and waits
    longer for it.
    """
    heartbeat_rounds = max(_HEARTBEAT_ROUNDS, 2 * subtasks)
    patience_s = max(_PATIENCE_ROUNDS, 4 * heartbeat_rounds) * round_s
    limits = replace(
        options.limits,
        source_poll_s=round_s,
        debloat_period_s=round_s / 4,
        watermark_interval_s=round_s / 2,
        heartbeat_s=heartbeat_rounds * round_s,
        connect_timeout_s=patience_s,
        start_timeout_s=patience_s,
    )
    return replace(options, heartbeat_timeout=patience_s, limits=limits)


def drawn_options(random: Random, round_s: float) -> Options:
    """Queues and frames of a few records, so that barriers meet backpressure; some large ones too.

    What one record emits beyond a full queue may stay in memory, wait on disk, or do either.
    """
    queue = random.choice((200, 1000, 20_000))
    limits = Limits(
        input_queue_bytes=queue,
        output_queue_bytes=random.choice((100, 500, 10_000)),
        frame_bytes=random.choice((64, 500, 5000)),
        frame_records=random.choice((1, 4, 1000)),
        inline_snapshot_bytes=random.choice((0, 200, 20_000)),
        debloat_samples=random.choice((1, 20)),
        debloat_window_bytes_min=random.choice((1, 100)),
        overdraft_bytes=random.choice((0, 200, 1 << 30)),
        spill_bytes_max=random.choice((0, 2000, 1 << 30)),
    )
    slots = random.random() < 0.5
    return Options(
        buffer_timeout=random.choice((0, 0.001, 0.02)),
        placement="slots" if slots else "subtask",
        debloat=random.choice((None, round_s / 10, 2 * round_s)),
        limits=limits,
    )


def drawn_latency_interval(random: Random, round_s: float) -> float | None:
    """How often sources send latency markers; in most runs never.

    Whoever draws it from a generator of its own leaves alone what the seed draws besides.
    """
    interval = random.choice((None, None, round_s / 5, 3 * round_s))
    return None if interval is None else max(LATENCY_INTERVAL_S_MIN, interval)
