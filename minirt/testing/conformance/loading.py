"""Finds the mode or the sink that a command line names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from minirt.annotations import signature_of
from minirt.errors import ConfigurationError
from minirt.modes import find_mode
from minirt.protocol.barriers import CheckpointMode
from minirt.testing.sinks.trial import SinkTrial


def load_mode(name: str) -> CheckpointMode:
    """The mode called `package.module:Mode`, or that is registered under `name`.

    `Mode` may be a mode, or a class or function that makes one without arguments. Raises
    ConfigurationError if there is none; what the module itself raises is passed on.
    """
    if ":" not in name:
        try:
            return find_mode(name)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error}; name one of your own as package.module:Mode"
            ) from error
    found = load_object(name)
    if not callable(found):
        return find_mode(found)
    _check_callable(found, name, "a mode")
    return find_mode(found())


def load_trial(name: str) -> SinkTrial:
    """What the factory `package.module:factory` of a sink under test gives.

    Raises ConfigurationError if there is none; what the module itself raises is passed on.
    """
    found = load_object(name)
    if callable(found):
        _check_callable(found, name, "a SinkTrial")
        found = found()
    if not isinstance(found, SinkTrial):
        raise ConfigurationError(
            f"{name} gives {type(found).__name__}, and no minirt.testing.sinks.SinkTrial"
        )
    return found


def load_object(name: str) -> Any:
    """What is called `package.module:attribute`."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(f"{name} is not of the form package.module:attribute")
    if not _exists(module_name):
        raise ConfigurationError(f"{name}: there is no module {module_name!r}")
    module = import_module(module_name)
    if not hasattr(module, attribute):
        raise ConfigurationError(f"{name}: module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


def _check_callable(found: Any, name: str, what: str) -> None:
    try:
        signature_of(found).bind()
    except TypeError as error:
        raise ConfigurationError(
            f"{name} cannot be called without arguments ({error}); name {what}, or a function that"
            " makes one"
        ) from error


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError as error:
        # The package that should hold it, unless it is one that this package wants to import.
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            return False
        raise
    except ValueError:  # An empty name, or part of one.
        return False
