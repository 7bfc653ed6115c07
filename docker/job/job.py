"""What each shop sells in ten seconds: a job that never ends, with output and checkpoints on S3.

docker compose --profile job up --build
"""

from __future__ import annotations

import os

import minirt as rt

SHOPS = ("Aachen", "Bergen", "Cádiz")
MS_BETWEEN_ORDERS = 20


def order(number: int) -> dict[str, object]:
    return {"shop": SHOPS[number % len(SHOPS)], "amount": number % 90 + 10}


env = rt.Environment("turnover", parallelism=2)
# With speed=1 the orders come as fast as in event time: fifty a second.
numbers = env.source(
    rt.SequenceSource.endless(),
    uid="numbers",
    watermarks=rt.Watermarks.monotonous(timestamp=lambda number: number * MS_BETWEEN_ORDERS),
    speed=1.0,
)
turnover = (
    numbers.map(order)
    .key_by("shop")
    .window(rt.Tumbling("10s"))
    .aggregate(rt.Sum("amount", "turnover"), rt.Count("orders"), uid="turnover")
)
turnover.sink(rt.JsonlSink(os.environ["OUTPUT"]), uid="out")
