"""What each figure of a comparison is, in a sentence: for readers of the report who know no other page."""

from __future__ import annotations

from collections.abc import Mapping

EXPLAINED: Mapping[str, str] = {
    "duration_s": "how long a checkpoint took, from its trigger until it was complete",
    "duration_p99_s": "99 % of the checkpoints of a run took no longer",
    "whole_s": "from the first snapshot that a checkpoint is made of until it was complete",
    "start_delay_s": "from the trigger until a subtask had its first barrier; the longest of all",
    "alignment_s": "from the first barrier of a subtask to the last of all inputs; the longest of all",
    "sync_s": "while a subtask copied its state and did nothing else; the longest of all",
    "async_s": "while a subtask stored its part and went on working; the longest of all",
    "completed": "how many checkpoints completed in a run",
    "failed": "how many checkpoints failed in a run, such as the one under way when a worker was killed",
    "in_flight_bytes": "records between operators that a checkpoint stored, as its barriers overtook them",
    "state_bytes": "what operators keep, as far as a checkpoint stored it",
    "stored_bytes": "all that a checkpoint stored",
    "skipped": "local snapshots that no checkpoint is made of",
    "forced": "local snapshots that were taken because of a mark",
    "protocol_rate": "barriers and marks that went into channels, in bytes a second",
    "queued_bytes": "the most that all queues held at a time",
    "sink_rate": "records that came to the sinks in a second, also those that came once more after a kill",
    "source_rate": "records that sources gave out in a second, likewise",
    "lag": "the most records at a time that were due and not read yet",
    "latency_p50_s": "half of the records, or of the latency markers, reached a sink within this time",
    "latency_p99_s": "99 % of them did",
    "latency_p999_s": "99.9 % of them did",
    "visible_p50_s": "the output of half of the records was committed within this time",
    "visible_p99_s": "that of 99 % of the records was",
    "first_record_s": "from a kill until any record came to a sink again",
    "first_new_s": "from a kill until the sinks had again what they had before, and one record more",
    "caught_up_s": "from a kill until new records came for a second at 90 % of the rate before it, or more",
    "rollback_s": "from the first snapshot that the job went on from after a kill until that kill",
    "processed_twice": "records that came to the sinks once more after a kill",
    "backpressure": "the share of time in which the operator that waited most had no room for its output",
    "cpu": "processor cores in use, by all processes of the job",
    "rss_bytes": "the most memory of all its processes together",
}
"""By the name of the figure. `docs/comparing-modes.md` has more."""
