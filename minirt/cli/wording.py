"""Messages in the words of the command line: `restore="latest"` is `--restore latest` there.

The library words its messages for programs, also in worker processes that do not know who started the job.
A message names an argument of `Environment.execute`, which `minirt run` takes as a flag, or an option,
which `--set` takes by its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FLAGS: Mapping[str, str] = {
    "restore": "--restore",
    "allow_non_restored_state": "--allow-non-restored-state",
    "allow_restore_fallback": "--allow-restore-fallback",
    "ignore_in_flight_data_of": "--ignore-in-flight-data-of",
    "give_up_output_of": "--give-up-output-of",
}
"""The flag for each argument of `Environment.execute`."""

_VALUE = r"""(?P<value>"[^"]*"|'[^']*'|[\w.]+)"""
_GIVEN = re.compile(rf"\b(?P<name>[a-z][a-z_]*)={_VALUE}")
_IN_A_CALL = re.compile(rf"\b(?:rt\.)?(?:Options|Limits|Checkpointing)\((?P<given>\w+={_VALUE})\)")
_NAMED = re.compile(r"(?<![-.\w])[a-z]+(?:_[a-z]+)+\b(?!=)")
_PHRASES = {
    "needs checkpointing": "needs --storage",
    "give the job checkpointing": "give the job --storage",
}


def in_flags(text: str) -> str:
    """The message with flags in place of arguments. Tracebacks, which show code, are left alone."""
    message, newline, trace = text.partition("\n")
    message = _IN_A_CALL.sub(lambda found: found["given"], message)
    message = _GIVEN.sub(_flag, message)
    message = _NAMED.sub(
        lambda found: FLAGS.get(found[0]) or _keys().get(found[0], found[0]), message
    )
    for phrase, instead in _PHRASES.items():
        message = message.replace(phrase, instead)
    return message + newline + trace


def _flag(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    plain = value.strip("\"'")
    if name in FLAGS:
        if value == "None":
            return f"no {FLAGS[name]}"
        return FLAGS[name] if value == "True" else f"{FLAGS[name]} {plain}"
    key = _keys().get(name)
    if key is None:
        return found[0]
    return f"--set {key}={plain.lower() if value in ('True', 'False', 'None') else plain}"


def _keys() -> Mapping[str, str]:
    """The key of each option, by its name."""
    from minirt.settings.catalogue import CATALOGUE

    return {key.rpartition(".")[2]: key for key in CATALOGUE if "." in key}
