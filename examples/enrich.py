"""Enrich: orders get the name of their customer, which arrives as a stream of its own.

Two streams are keyed alike and share state. An order that comes before its customer waits.

Run it:  python examples/enrich.py
"""

from __future__ import annotations

import minirt as rt

CUSTOMERS = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]
ORDERS = [
    {"customer": 1, "item": "tea"},
    {"customer": 2, "item": "cup"},
    {"customer": 3, "item": "pot"},  # nobody knows this customer
    {"customer": 1, "item": "milk"},
]


class Enrich(rt.KeyedCoProcess):
    """Left: orders. Right: customers."""

    name = rt.ValueState()
    waiting = rt.ListState()

    def process_left(self, record, ctx):
        if self.name.value is None:
            self.waiting.add(record)
            ctx.set_timer(2**62)  # fires when both inputs have ended
        else:
            yield {"name": self.name.value, "item": record["item"]}

    def process_right(self, record, ctx):
        self.name.value = record["name"]
        for order in self.waiting.get():
            yield {"name": self.name.value, "item": order["item"]}
        self.waiting.clear()

    def on_timer(self, timestamp, ctx):
        for order in self.waiting.get():
            ctx.side("unknown", order)


def main() -> None:
    env = rt.Environment("enrich", parallelism=2)
    orders = env.source(rt.CollectionSource(ORDERS), uid="orders")
    customers = env.source(rt.CollectionSource(CUSTOMERS), uid="customers")
    enriched = orders.connect(customers).key_by("customer", "id").process(Enrich(), uid="enrich")
    known, unknown = rt.CollectSink(), rt.CollectSink()
    enriched.sink(known, uid="known")
    enriched.side_output("unknown").sink(unknown, uid="unknown")
    env.execute()

    for row in sorted(known.rows, key=lambda row: (row["name"], row["item"])):
        print(row["name"], "ordered", row["item"])
    for row in unknown.rows:
        print("customer", row["customer"], "is unknown, ordered", row["item"])


if __name__ == "__main__":
    main()
