"""Stands between a simulated subtask and its checkpoint mode, so that traces tell what the mode ordered."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Set
from dataclasses import fields
from functools import partial
from typing import Any, cast

from minirt.errors import UserCodeError
from minirt.protocol.barriers import Alignment, Barrier, CheckpointMode, Command


def noting(mode: CheckpointMode, note: Callable[[str], None]) -> CheckpointMode:
    """A mode that orders what `mode` orders, and notes it.

    It raises UserCodeError, with the traceback of what the mode raised, or if an answer is not a list
    of commands.
    """
    return cast(CheckpointMode, _NotingMode(mode, note))


class _NotingMode:
    def __init__(self, mode: CheckpointMode, note: Callable[[str], None]) -> None:
        self._mode = mode
        self._note = note

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._mode, name)
        return partial(self._ask, name, value) if name.startswith("on_") else value

    def _ask(
        self, event: str, answer: Callable[..., Any], alignment: Alignment, *channel: int
    ) -> list[Command]:
        what = f"{event}({', '.join(map(str, channel))}) of checkpoint {alignment.barrier.checkpoint_id}"
        try:
            commands = answer(alignment, *channel)
        except Exception as error:
            raise UserCodeError(
                f"mode {self._mode.name!r} raised in {event}:\n{traceback.format_exc()}"
            ) from error
        if not (isinstance(commands, list) and all(isinstance(c, Command) for c in commands)):
            raise UserCodeError(
                f"mode {self._mode.name!r} must answer {event} with a list of commands, not {commands!r}"
            )
        self._note(f"{what}: {', '.join(map(_in_words, commands)) or 'nothing to do'}")
        return commands


def _in_words(command: Command) -> str:
    values = (getattr(command, field.name) for field in fields(command))
    return f"{type(command).__name__}({', '.join(filter(None, map(_value, values)))})"


def _value(value: Any) -> str:
    match value:
        case Barrier() | None:
            return ""
        case Set():
            return f"{{{', '.join(map(str, sorted(value)))}}}"
    return str(value)
