"""Sessions: clicks of a user belong together until the user has been silent for ten minutes.

Shows keyed state and event-time timers. The clicks are out of order, as they are in life.

Run it:  python examples/sessions.py
"""

from __future__ import annotations

import datetime as dt

import minirt as rt

GAP_MS = 10 * 60 * 1000

CLICKS = [
    ("ann", "09:00", "home"),
    ("bob", "09:01", "home"),
    ("ann", "09:04", "shop"),
    ("ann", "09:03", "search"),  # one minute late, within the bound below
    ("bob", "09:30", "home"),
    ("ann", "09:31", "home"),
]


def click(user: str, time: str, page: str) -> dict:
    at = dt.datetime.fromisoformat(f"2024-05-01T{time}:00+00:00")
    return {"user": user, "time": at, "page": page}


class Sessions(rt.KeyedProcess):
    """Every click may be the last one of its session: a timer looks whether it was."""

    clicks = rt.ListState()

    def process(self, record, ctx):
        self.clicks.add([ctx.timestamp, record["page"]])
        ctx.set_timer(ctx.timestamp + GAP_MS)

    def on_timer(self, timestamp, ctx):
        # All clicks before the watermark are here; some from after `timestamp` may be, too.
        clicks = sorted(self.clicks.get())
        last = timestamp - GAP_MS
        if any(last < time < timestamp for time, _ in clicks):
            return  # the session goes on, and a later timer will look again
        session = [[time, page] for time, page in clicks if time <= last]
        self.clicks.set([click for click in clicks if click not in session])
        seconds = (session[-1][0] - session[0][0]) // 1000
        yield {"user": ctx.key, "seconds": seconds, "pages": [page for _, page in session]}


def main() -> None:
    env = rt.Environment("sessions", parallelism=2)
    watermarks = rt.Watermarks.bounded("2min", timestamp="time")
    clicks = env.source(
        rt.CollectionSource([click(*row) for row in CLICKS]), uid="clicks", watermarks=watermarks
    )
    sessions = rt.CollectSink()
    clicks.key_by("user").process(Sessions(), uid="sessions").sink(sessions, uid="out")
    env.execute()
    for row in sorted(sessions.rows, key=lambda row: (row["user"], -row["seconds"])):
        print(f"{row['user']}: {row['seconds']} s, {' > '.join(row['pages'])}")


if __name__ == "__main__":
    main()
