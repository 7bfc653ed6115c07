"""The program of `minirt demo kafka`: flights from Kafka, hourly results into a Delta table.

It is a process of its own, so that its coordinator can be killed. What happens it says on its standard
output, a line of JSON each.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any

import minirt as rt
from minirt_connectors.delta import DeltaSink
from minirt_connectors.flights.audience import Audience
from minirt_connectors.flights.demo import PARALLELISM, queues_for
from minirt_connectors.flights.hourly import RESULT_SCHEMA
from minirt_connectors.flights.job import build
from minirt_connectors.flights.killer import Killer
from minirt_connectors.kafka import KafkaSink, KafkaSource

PARTITIONS = PARALLELISM


@dataclass(frozen=True, slots=True)
class KafkaPlan:
    """What one process of the job does: `kills` are of workers. Output and checkpoints are below `root`."""

    bootstrap: str
    topic: str
    root: str
    mode: str
    kills: int
    slow_s_per_result: float
    pause_s_max: float
    seed: int | None

    @property
    def results_per_s(self) -> float | None:
        """The pace of its slow stage; None where nothing slows it down."""
        return PARALLELISM / self.slow_s_per_result if self.slow_s_per_result else None

    @property
    def output(self) -> str:
        return f"{self.root}/output"


def write_flights(source: rt.Source[Any], bootstrap: str, topic: str, checkpoints: str) -> None:
    """Write the flights to a topic, each once, in the order of event time within each partition."""
    env = rt.Environment("flights-to-kafka", parallelism=1)
    flights = env.source(source, uid="flights").map(_as_json, uid="as-json")
    flights.sink(KafkaSink(bootstrap, topic, key="origin"), uid="kafka")
    env.execute(checkpointing=rt.Checkpointing(checkpoints, interval="1s"))


def _as_json(flight: dict[str, Any]) -> dict[str, Any]:
    at = flight["event_time"]
    return {**flight, "event_time": round(at.timestamp() * 1000)}


def run(plan: KafkaPlan) -> None:
    """Run the job to its end, from its newest checkpoint if there is one."""
    env = rt.Environment("flights-from-kafka", parallelism=PARALLELISM)
    source = KafkaSource(plan.bootstrap, plan.topic, bounded=True)
    sink = DeltaSink(plan.output, schema=RESULT_SCHEMA)
    build(env, source, sink, slow_s_per_result=plan.slow_s_per_result)
    killer = Killer(
        plan.kills,
        plan.pause_s_max,
        random.Random(plan.seed),
        lambda kill: _say(kill=str(kill)),
    )
    job = env.start(
        checkpointing=rt.Checkpointing(
            f"{plan.root}/checkpoints", interval="500ms", mode=plan.mode, tolerable_failures=100
        ),
        restart=rt.Restart.fixed_delay(attempts=plan.kills + 3, delay="50ms"),
        options=rt.Options(limits=queues_for(plan.results_per_s)),
        restore="latest",
        observer=Audience(killer, _Telling()),
    )
    killer.start(job)
    try:
        result = job.wait()
    finally:
        killer.stop()
    _say(ended=result.status.value, restarts=result.restarts)


class _Telling(rt.JobObserver):
    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        if report.completed:
            _say(checkpoint=report.checkpoint_id)


_TURN = threading.Lock()


def _say(**what: Any) -> None:
    with _TURN:  # The killer and the coordinator have threads of their own.
        print(json.dumps(what), flush=True)


def arguments(plan: KafkaPlan) -> list[str]:
    """The command that runs `plan`."""
    return [sys.executable, "-m", __spec__.name, json.dumps(asdict(plan))]


if __name__ == "__main__":
    run(KafkaPlan(**json.loads(sys.argv[1])))
