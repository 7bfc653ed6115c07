"""Writes tables into configuration.md (options and keys), metrics.md (metrics) and versions.md (formats).

Run it after changing an option, a metric or a format:  python docs/make_reference.py
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

from blocks import update

from minirt import config
from minirt.data import codec
from minirt.monitoring.catalogue import CATALOGUE as METRICS
from minirt.protocol import manifest
from minirt.settings.catalogue import (
    ABSENT,
    CATALOGUE,
    FREE_TABLES,
    MODE_OPTIONS,
    QUEUES,
    SECTIONS,
    STORAGE_OPTIONS,
    STRATEGIES,
    STRATEGY,
    OptionKey,
)
from minirt.settings.sources import variable_of
from minirt.state import sections
from minirt.storage import leases, parts

DOCS = Path(__file__).parent
CLASSES = (config.Checkpointing, config.Options, config.Limits)

SPECIAL = {
    ("Checkpointing", "storage"): "A path or URL that fsspec understands.",
    ("Checkpointing", "mode"): "The name of a checkpoint mode, or a mode object.",
    ("Options", "limits"): "See the table of limits.",
}
"""What the fields without a docstring of their own are for."""


def table(kind: type) -> str:
    """The fields of an option class with defaults and meaning."""
    meanings = docstrings(kind)
    rows = [
        f"| `{field.name}` | {default_of(field)} | "
        f"{meanings.get(field.name) or SPECIAL[kind.__name__, field.name]} |"
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def keys() -> str:
    """Every key that can be given outside the code."""
    head = ["| key | environment variable | value | default | meaning |", "|---|---|---|---|---|"]
    rows = [
        (option.key, option.kind.words, _defaults(option), _meaning(option.key))
        for option in CATALOGUE.values()
    ]
    rows += [(f"{table}.NAME", "any", "", _MEANINGS[table]) for table in FREE_TABLES]
    return "\n".join(
        head
        + [
            f"| `{key}` | `{variable_of(key)}` | {words} | {default} | {meaning} |"
            for key, words, default, meaning in rows
        ]
    )


def metrics() -> str:
    """Every metric that Prometheus can read."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.meaning} |"
        for metric in METRICS
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def formats() -> str:
    """What minirt stores, and which version of each format this one writes."""
    rows = [
        ("manifest of a checkpoint", manifest.MANIFEST_VERSION, "its head; refused"),
        ("file of a snapshot", parts.PART_VERSION, "its head, under a checksum; refused"),
        ("state, timers and splits in a snapshot", sections._VERSION, "each section; refused"),
        ("batch of records in flight", codec._VERSION, "each batch; refused"),
        ("lease of a running job", leases.LEASE_VERSION, "its text; says only that the job runs"),
    ]
    head = [
        "| format | version | where it stands; what becomes of an unknown one |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *(f"| {name} | {of} | {where} |" for name, of, where in rows)])


_MEANINGS = {
    "name": "What the job is called; that of the environment by default.",
    "parallelism": "Instead of that of the environment; operators that state their own keep it.",
    "restore": "What to start from; the beginning by default, `none` gives up what there is.",
    "allow_non_restored_state": "Drop restored state that no operator claims.",
    "allow_restore_fallback": "Pass over damaged checkpoints.",
    "ignore_in_flight_data_of": "The id of a checkpoint to be restored without its in-flight records.",
    "give_up_output_of": "A sink and a checkpoint to be restored without its output, as `UID@ID`.",
    STRATEGY: "What happens after a failure; the other keys of `restart` are its arguments.",
    MODE_OPTIONS: "An option of the checkpoint mode.",
    STORAGE_OPTIONS: "Passed to fsspec.",
    QUEUES: "By uid, channels into single operators: a table, or `UID.FIELD` with a field of `Queues`.",
}


def _meaning(key: str) -> str:
    section, _, name = key.partition(".")
    if key in _MEANINGS:
        return _MEANINGS[key]
    if section in SECTIONS:
        kind = SECTIONS[section]
        return docstrings(kind).get(name) or SPECIAL[kind.__name__, name]
    takers = [f"`{strategy}`" for strategy in _strategies_with(name)]
    return f"For strategy {' and '.join(takers)}."


def _defaults(option: OptionKey) -> str:
    """As the option is written; each strategy has its own."""
    section, _, name = option.key.partition(".")
    if section == "restart":
        values = list(dict.fromkeys(_strategies_with(name).values()))
    elif option.default is inspect.Parameter.empty:
        values = []
    else:
        values = [option.default]
    return " or ".join(f"`{_written(value)}`" for value in values)


def _written(value: object) -> str:
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def _strategies_with(argument: str) -> dict[str, object]:
    """The restart strategies that take this argument, with their default for it."""
    return {
        strategy: inspect.signature(factory).parameters[argument].default
        for strategy, factory in STRATEGIES.items()
        if argument in inspect.signature(factory).parameters
    }


def docstrings(kind: type) -> dict[str, str]:
    """The string below each field, by the name of the field."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(ast.literal_eval(below.value).split())
    return found


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return "`{}`" if made == {} else f"`{type(made).__name__}()`"
    if field.default is dataclasses.MISSING:
        return "required"
    if "bytes" in field.name:
        return _size(field.default)
    if field.name.endswith("_s"):
        return f"{field.default:g} s"
    return f"`{field.default!r}`"


def _size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} bytes"


if __name__ == "__main__":
    blocks = {f"options of {kind.__name__}": table(kind) for kind in CLASSES}
    outcomes = [
        update(DOCS / "configuration.md", {**blocks, "keys": keys()}),
        update(DOCS / "metrics.md", {"metrics": metrics()}),
        update(DOCS / "versions.md", {"formats": formats()}),
    ]
    sys.exit(max(outcomes))
