"""A job as its storage remembers it, also after it has died."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import asdict

from minirt.clock import SYSTEM_CLOCK
from minirt.errors import ConfigurationError
from minirt.inspect import Checkpoints
from minirt.inspect.summaries import StoredSummaries, Summary
from minirt.monitoring.description import without_password
from minirt.operations.details import with_parts
from minirt.protocol.manifest import Manifest, ManifestKey, VertexEntry
from minirt.protocol.reports import CheckpointStatus, Stored
from minirt.ui.reading import Plain, Reading

AGAIN_S = 10.0
"""How often storage is asked for news while somebody looks at a job that has not ended."""
_ENDS = ("finished", "stopped", "cancelled", "failed")


class StoredJob:
    """Reads storage once, a long history in several readings. As long as no event says that the job has
    ended, it looks for news now and then."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._storage = checkpoints
        self._summaries = StoredSummaries(checkpoints)
        self._reading: Reading | None = None
        self._looked_at = 0.0
        self._seen: object = None

    def read(self) -> Reading:
        reading = self._reading
        rested = SYSTEM_CLOCK.monotonic() - self._looked_at >= AGAIN_S
        if reading is None or not self._summaries.complete or (not _is_over(reading) and rested):
            seen = self._storage.keys(), self._storage.events()[-1:]
            if reading is None or not self._summaries.complete or seen != self._seen:
                self._seen, reading = seen, self._read()
                self._reading = reading
            self._looked_at = SYSTEM_CLOCK.monotonic()
        return reading

    def checkpoint(self, checkpoint_id: int, generation: int) -> Plain:
        report = self._summaries.report(ManifestKey(checkpoint_id, generation))
        if report is not None:
            return with_parts(report)
        raise ConfigurationError(f"{self._storage.root} remembers no checkpoint {checkpoint_id}")

    def act(self, action: str, arguments: Plain) -> Plain:
        raise ConfigurationError(f"cannot {action} a job by its storage; give its name")

    def _read(self) -> Reading:
        checkpoints = [_plain(*one) for one in self._summaries.read()]
        events = self._storage.events()
        manifest = self._manifest()
        if not (events or checkpoints or manifest):
            raise ConfigurationError(f"{self._storage.root} has no history of a job")
        newest = next((o for o in reversed(checkpoints) if o["status"] == "completed"), None)
        told = [event for event in events if event["event"] != "running"]
        return Reading(
            figures_of(events, checkpoints, manifest),
            {
                **_plan(manifest, events),
                "storage": without_password(self._storage.root),
                "configuration": {} if newest is None else {"checkpointing.mode": newest["mode"]},
            },
            checkpoints,
            self._with_parts(newest),
            (),
            [{key: event.get(key) for key in _OF_EVENT} for event in told],
            live=False,
            note=_NOTE if self._summaries.complete else f"{_NOTE} {_MORE}",
        )

    def _with_parts(self, newest: Plain | None) -> Plain | None:
        if newest is None:
            return None
        key = ManifestKey(newest["checkpoint_id"], newest["generation"])
        report = self._summaries.report(key)
        return None if report is None else with_parts(report)

    def _manifest(self) -> Manifest | None:
        keys = self._storage.keys()
        return self._storage.open(keys[-1]).manifest if keys else None


_NOTE = "Read from storage. Times and rates are averages over the last generation that ended."
_MORE = "The history is long: older checkpoints are still being read."
_UP = frozenset({"running", "restarting", "comeback"})
"""Events behind which a job is up."""
_OF_EVENT = ("at", "event", "generation", "cause")


def _plain(one: Summary, stored: Stored) -> Plain:
    """As a running job tells of it."""
    status = CheckpointStatus.COMPLETED if one.completed else CheckpointStatus.FAILED
    told = {**asdict(one), "status": status.value, "stored": stored}
    del told["completed"]
    return told


def figures_of(
    events: Sequence[Plain], checkpoints: Sequence[Plain], manifest: Manifest | None
) -> Plain:
    """What storage tells, in the form of the figures of a running job."""
    last = events[-1] if events else None
    ended = [event for event in events if event.get("operators")]
    if last is not None:
        name, at = last["job"], last["at"]
        status = "running" if last["event"] == "comeback" else last["event"]
    else:
        name = "job" if manifest is None else manifest.job
        status, at = "not known", checkpoints[-1]["triggered_at"] if checkpoints else 0.0
    completed = [one for one in checkpoints if one["status"] == "completed"]
    failed = [one for one in checkpoints if one["status"] != "completed"]
    return {
        "name": name,
        "status": "last seen running" if status == "running" else status,
        "generation": 0 if last is None else last["generation"],
        "restarts": 0 if last is None else last["restarts"],
        # The page shows the time since then as the time that the job was up.
        "started_at": at - running_s(events),
        "at": at,
        "last_failure": next((e["cause"] for e in reversed(events) if e.get("cause")), None),
        "checkpoints": {
            "completed": len(completed),
            "failed": len(failed),
            "newest": completed[-1] if completed else None,
            "last_failure": failed[-1]["reason"] if failed else None,
            "under_way": [],
        },
        "operators": [_operator(one) for one in ended[-1]["operators"]] if ended else [],
    }


def running_s(events: Sequence[Plain]) -> float:
    """Return for how many seconds the job was up: not between an end and the next start.

    If a program died, storage does not tell when: only the time up to its last event counts.
    """
    spans: list[float] = [
        after["at"] - before["at"]
        for before, after in itertools.pairwise(events)
        if before["event"] in _UP
        and (after["event"] != "running" or before["event"] == "restarting")
    ]
    return sum(spans)


def _operator(totals: Plain) -> Plain:
    """Averages over the life of its subtasks."""
    times = [f"{name}_s" for name in ("busy", "idle", "soft_backpressure", "hard_backpressure")]
    lived_s = sum(totals[name] for name in times) + totals.get("drift_pause_s", 0.0)
    rates: Plain | None = None
    if lived_s > 0:
        life_s = lived_s / max(1, totals["parallelism"])
        rates = {f"{name[:-2]}_ms": 1000 * totals[name] / lived_s for name in times}
        flows = ("records_in", "records_out", "bytes_in", "bytes_out")
        rates |= {name: totals[name] / life_s for name in flows}
    return {
        "operator": totals["operator"],
        "name": totals["name"],
        "parallelism": totals["parallelism"],
        "per_second": rates,
        "subtasks": [],
    }


def _plan(manifest: Manifest | None, events: Sequence[Plain]) -> Plain:
    """Vertices and links, as far as storage tells them."""
    if manifest is not None:
        return plan_of(manifest.vertices)
    ended = [event for event in events if event.get("operators")]
    operators = ended[-1]["operators"] if ended else []
    return {
        "vertices": [
            {"id": id, "name": o["name"], "uids": [o["operator"]], "parallelism": o["parallelism"]}
            for id, o in enumerate(operators)
        ],
        "links": [],
    }


def plan_of(entries: Sequence[VertexEntry]) -> Plain:
    """Vertices and links of a job, from the keys of its edges.

    A manifest has the uids of operators with state. The others of a vertex, and which operator is the first
    of its chain, are in the keys of the edges that lead there.
    """
    with_state = {uid for entry in entries for uid in entry.uids}
    edges = [(entry.id, *_ends(edge.key, with_state)) for entry in entries for edge in entry.edges]
    owner = {receiver: id for id, _, receiver in edges}
    owner |= {uid: entry.id for entry in entries for uid in entry.uids}
    links = [
        (owner[sender], id, receiver)
        for id, sender, receiver in edges
        if owner.get(sender, id) != id
    ]
    vertices = []
    for entry in entries:
        heads = [receiver for _, id, receiver in links if id == entry.id]
        others = [uid for uid, id in owner.items() if id == entry.id]
        uids = list(dict.fromkeys([*heads, *entry.uids, *others]))
        vertices.append(
            {
                "id": entry.id,
                "name": entry.name,
                "uids": uids,
                "parallelism": entry.parallelism,
            }
        )
    return {
        "vertices": vertices,
        "links": [{"source": source, "target": id, "kind": ""} for source, id, _ in links],
    }


def _ends(key: str, known: Collection[str]) -> tuple[str, str]:
    """Sender and receiver of an edge, whose key is "sender > receiver:input".

    Behind the sender of a side output is "[tag]". A uid may look like an edge itself: where there are
    several places to part the key, the one counts at which both ends are known, or else the last.
    """
    body = key.rpartition(":")[0]
    parts = body.split(" > ")
    ways = [(" > ".join(parts[:at]), " > ".join(parts[at:])) for at in range(len(parts) - 1, 0, -1)]
    found = [(_without_tag(sender, known), receiver) for sender, receiver in ways]
    return max(found, key=lambda ends: sum(end in known for end in ends), default=("", body))


def _without_tag(sender: str, known: Collection[str]) -> str:
    bare, bracket, _ = sender.rpartition("[")
    return bare if bracket and sender.endswith("]") and sender not in known else sender


def _is_over(reading: Reading) -> bool:
    return reading.figures["status"] in _ENDS
