"""Lays what was given outside the code over what the code says."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from minirt.config import Checkpointing, Options, Queues
from minirt.errors import ConfigurationError
from minirt.modes import DEFAULT_MODE, find_mode
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.restarts import RestartStrategy
from minirt.settings.catalogue import (
    ABSENT,
    MODE,
    MODE_OPTIONS,
    ORIGIN,
    QUEUES,
    STORAGE_OPTIONS,
    STRATEGIES,
    STRATEGY,
    nearest,
)
from minirt.settings.sources import (
    Given,
    Layer,
    from_assignments,
    from_environment,
    from_file,
    from_flags,
    merged,
)
from minirt.units import size_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings that an environment and its `execute` can get from outside; None stands for their
    default."""

    name: str | None = None
    parallelism: int | None = None
    checkpointing: Checkpointing | None = None
    restart: RestartStrategy | None = None
    options: Options = dataclasses.field(default_factory=Options)
    restore: str | int | None = None
    allow_non_restored_state: bool = False
    allow_restore_fallback: bool = False
    ignore_in_flight_data_of: int | None = None
    give_up_output_of: str | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """The arguments of `Environment.execute` that say where the job starts from."""
        return {name: getattr(self, name) for name in ORIGIN}


def load_settings(
    file: str | os.PathLike[str] | None = None,
    *,
    defaults: JobSettings | None = None,
    environ: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
) -> JobSettings:
    """The settings of a job: `defaults`, then the TOML `file`, then `environ`, then `assignments`.

    What comes later counts. `environ` is that of the process unless given; of its variables those count
    that begin with MINIRT_. `assignments` are texts such as "checkpointing.interval=5s".

    Raises ConfigurationError, naming file or variable and key, for what is unknown, cannot be read or
    would have no effect.
    """
    given = read_settings(file, environ, assignments)
    return apply_settings(given, JobSettings() if defaults is None else defaults)


def read_settings(
    file: str | os.PathLike[str] | None,
    environ: Mapping[str, str] | None,
    assignments: Iterable[str],
    flags: Mapping[str, object] | None = None,
) -> Layer:
    """The options from all places of `load_settings` together, each key checked by itself.

    `flags` are options for which the command line has flags of their own: they stand beside `assignments`.
    """
    layers = [] if file is None else [from_file(Path(file))]
    layers.append(from_environment(os.environ if environ is None else environ))
    assigned, flagged = from_assignments(assignments), from_flags(flags or {})
    for key in assigned.keys() & flagged.keys():
        raise ConfigurationError(f"{key} is given twice: by {flagged[key].called} and by --set")
    layers.append({**assigned, **flagged})
    return merged(layers)


def read_storage_options(
    assignments: Iterable[str], environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The `checkpointing.storage_options` of `environ`, then those of texts such as "key=value"."""
    layers = [
        from_environment(os.environ if environ is None else environ),
        from_assignments(f"{STORAGE_OPTIONS}.{assignment}" for assignment in assignments),
    ]
    return _values(_below(STORAGE_OPTIONS, merged(layers)))


def apply_settings(given: Layer, defaults: JobSettings) -> JobSettings:
    """The defaults with everything that was given in their place. Raises ConfigurationError."""
    return JobSettings(
        given["name"].value if "name" in given else defaults.name,
        given["parallelism"].value if "parallelism" in given else defaults.parallelism,
        _checkpointing(given, defaults.checkpointing),
        _restart(_below("restart", given), defaults.restart),
        _options(given, defaults.options),
        **{
            name: given[name].value if name in given else getattr(defaults, name) for name in ORIGIN
        },
    )


def _options(given: Layer, default: Options) -> Options:
    limits = dataclasses.replace(default.limits, **_values(_below("limits", given)))
    fields = {name: one.value for name, one in _below("options", given).items() if "." not in name}
    queues = _queues(_below(QUEUES, given), default.queues)
    return dataclasses.replace(default, **fields, limits=limits, queues=queues)


def _queues(given: Layer, known: Mapping[str, Queues]) -> dict[str, Queues]:
    """A table for each uid, or single fields as `UID.FIELD`."""
    fields: dict[str, dict[str, Any]] = {}
    allowed = {field.name for field in dataclasses.fields(Queues)}
    for name, one in given.items():
        uid, _, last = name.rpartition(".")
        table = one.value if isinstance(one.value, Mapping) else {last: one.value}
        uid = name if isinstance(one.value, Mapping) else uid
        for field, value in table.items():
            if not uid or field not in allowed:
                raise ConfigurationError(
                    f"{one.called}: give {QUEUES}.UID.FIELD; fields are {', '.join(sorted(allowed))}"
                )
            size = field.endswith("_bytes") and value is not None
            fields.setdefault(uid, {})[field] = size_bytes(value, one.called) if size else value
    new = {
        uid: dataclasses.replace(known[uid], **own) if uid in known else Queues(**own)
        for uid, own in fields.items()
    }
    return {**known, **new}


def _checkpointing(given: Layer, default: Checkpointing | None) -> Checkpointing | None:
    below = _below("checkpointing", given)
    if not below:
        return default
    if default is None and "storage" not in below:
        first = next(iter(below.values()))
        raise ConfigurationError(
            f"{first.called} has no effect without checkpointing.storage, where checkpoints are stored"
        )
    fields = {name: one.value for name, one in below.items() if "." not in name}
    if storage_options := _below(STORAGE_OPTIONS, given):
        known = {} if default is None else default.storage_options
        fields["storage_options"] = {**known, **_values(storage_options)}
    mode_options = _below(MODE_OPTIONS, given)
    if MODE in given or mode_options:
        in_code = DEFAULT_MODE if default is None else default.mode
        fields["mode"] = _mode(given.get(MODE, Given(in_code, MODE)), mode_options)
    return Checkpointing(**fields) if default is None else dataclasses.replace(default, **fields)


def _mode(chosen: Given, options: Layer) -> CheckpointMode:
    """A mode by name or the one in the code, with these options instead of its own."""
    try:
        mode = find_mode(chosen.value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{chosen.called}: {error}") from error
    if not options:
        return mode
    own: Any = mode  # a user's mode need not be a dataclass
    fields = dataclasses.fields(own) if dataclasses.is_dataclass(own) else ()
    taken = {field.name: getattr(mode, field.name) for field in fields}
    for name, one in options.items():
        if name not in taken:
            raise ConfigurationError(
                f"{one.called}: checkpoint mode {mode.name} has no option {name!r}{nearest(name, taken)}"
            )
    values = {name: None if one.value == ABSENT else one.value for name, one in options.items()}
    return type(mode)(**{**taken, **values})


def _restart(given: Layer, default: RestartStrategy | None) -> RestartStrategy | None:
    if not given:
        return default
    if "strategy" not in given:
        first = next(iter(given.values()))
        raise ConfigurationError(f"{first.called} has no effect without {STRATEGY}")
    strategy = given["strategy"].value
    factory = STRATEGIES[strategy]
    arguments = {name: one for name, one in given.items() if name != "strategy"}
    known = inspect.signature(factory).parameters
    for name, one in arguments.items():
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no options"
            raise ConfigurationError(
                f"{one.called} has no effect with restart strategy {strategy}, which {takes}"
            )
    return factory(**_values(arguments))


def _below(table: str, given: Layer) -> dict[str, Given]:
    above = f"{table}."
    return {key.removeprefix(above): one for key, one in given.items() if key.startswith(above)}


def _values(given: Layer) -> dict[str, Any]:
    return {name: one.value for name, one in given.items()}
