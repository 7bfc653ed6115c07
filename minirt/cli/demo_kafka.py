"""`minirt demo kafka`: flights through a topic into a Delta table, with a coordinator killed as well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from minirt_connectors.flights.demo import DemoInput, Plan
    from minirt_connectors.flights.kafka_demo import KafkaRun
    from minirt_connectors.flights.place import Place
    from minirt_connectors.flights.processes import Mark


def run_through_kafka(
    out: Console, bootstrap: str, folder: Path, plans: Sequence[Plan], rows: int | None
) -> list[KafkaRun]:
    """Write the flights to a new topic, and run the job once for each plan.

    Raises ConfigurationError if no broker answers, before anything else starts.
    """
    from minirt_connectors.flights.demo import prepare
    from minirt_connectors.flights.kafka_demo import new_topic
    from minirt_connectors.flights.kafka_job import write_flights
    from minirt_connectors.flights.place import Place
    from minirt_connectors.flights.processes import Mark

    mark = Mark()
    with new_topic(bootstrap) as topic:
        out.print("Spark starts, writes down the flights, and computes what must come out ...")
        place = Place.here()
        # One split, so that all is in the order of event time.
        demo = prepare(place.spark, folder / "flights", rows, splits=1)
        write_flights(demo.source, bootstrap, topic, str(folder / "to-kafka"))
        out.print(
            f"{demo.rows:,} flights are in the topic {topic} at {bootstrap}, {demo.results:,} results "
            f"expected. Each job: kills of {plans[0].kills} workers"
            f"{' and of its coordinator' if plans[0].kills else ''}."
        )
        return [_run_one(out, bootstrap, topic, folder, plan, demo, place, mark) for plan in plans]


def _run_one(
    out: Console,
    bootstrap: str,
    topic: str,
    folder: Path,
    plan: Plan,
    demo: DemoInput,
    place: Place,
    mark: Mark,
) -> KafkaRun:
    from minirt_connectors.flights.demo import PARALLELISM
    from minirt_connectors.flights.kafka_demo import judge, run_and_kill
    from minirt_connectors.flights.kafka_job import KafkaPlan

    out.print(f"\n{plan.mode}")
    own = KafkaPlan(
        bootstrap,
        topic,
        f"{folder}/{plan.mode}",
        plan.mode,
        plan.kills,
        plan.seconds * PARALLELISM / max(1, demo.results),
        plan.seconds / 6,
        plan.seed,
    )
    killed = run_and_kill(own, lambda message: out.print(f"  {message}"))
    left = mark.left_of_jobs()
    out.print("Spark compares the files of the Delta table with what it computed itself ...")
    run = judge(place.spark, demo, own, killed, len(left))
    out.print(f"{run.verdict}\n{run.conclusion}")
    return run
