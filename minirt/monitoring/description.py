"""What stays the same while a job runs: its graph, and what it was told to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from minirt.config import Limits
from minirt.graph.execution import ExecutionGraph
from minirt.protocol.restarts import RestartStrategy
from minirt.run_settings import RunSettings
from minirt.secret_texts import register_url, without_secrets

Plain = dict[str, Any]


def describe_job(
    execution: ExecutionGraph, settings: RunSettings, mode: str, restart: RestartStrategy
) -> Plain:
    """As JSON can carry it. It holds no secrets: of options for a storage it tells the names only.

    `mode` is that of checkpoints, `restart` what happens after failures; defaults are filled in.
    """
    checkpointing = settings.checkpointing
    return {
        **describe_graph(execution),
        "storage": None if checkpointing is None else without_password(checkpointing.storage),
        "configuration": dict(_configuration(settings, mode, restart)),
    }


def describe_graph(execution: ExecutionGraph) -> Plain:
    """The part of it that is another one at another parallelism."""
    return {
        "vertices": [
            {
                "id": vertex.id,
                "name": vertex.name,
                "uids": [node.uid for node in vertex.operators],
                "parallelism": vertex.parallelism,
            }
            for vertex in execution.vertices
        ],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "kind": link.kind if link.tag is None else f"{link.kind}, side output {link.tag}",
            }
            for link in execution.links
        ],
    }


def without_password(storage: str | os.PathLike[str]) -> str:
    """Return a path or URL as it may be shown."""
    register_url(os.fspath(storage))
    return without_secrets(os.fspath(storage))


def _configuration(
    settings: RunSettings, mode: str, restart: RestartStrategy
) -> Iterator[tuple[str, str]]:
    checkpointing, options = settings.checkpointing, settings.options
    if checkpointing is not None:
        shown: Mapping[str, object] = {
            "mode": mode,
            "storage": without_password(checkpointing.storage),
            "storage_options": ", ".join(checkpointing.storage_options),
        }
        for field in fields(checkpointing):
            value = shown.get(field.name, getattr(checkpointing, field.name))
            yield f"checkpointing.{field.name}", str(value)
    yield "restart", restart.describe()
    if settings.restore.which is not None:
        yield "restore", without_password(str(settings.restore.which))
    for field in fields(options):
        if field.name != "limits":
            yield f"options.{field.name}", str(getattr(options, field.name))
    usual = Limits()
    for field in fields(usual):
        value = getattr(options.limits, field.name)
        if value != getattr(usual, field.name):
            yield f"limits.{field.name}", str(value)
