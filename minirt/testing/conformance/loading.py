"""Finds the mode that a command line names."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec

from minirt.errors import ConfigurationError
from minirt.modes import find_mode
from minirt.protocol.barriers import CheckpointMode


def load_mode(name: str) -> CheckpointMode:
    """The mode called `package.module:Mode`, or that is registered under `name`.

    `Mode` may be a mode, or a class or function that makes one without arguments. Raises
    ConfigurationError if there is none; what the module itself raises is passed on.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        try:
            return find_mode(name)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error}; name one of your own as package.module:Mode"
            ) from error
    if not _exists(module_name):
        raise ConfigurationError(f"{name}: there is no module {module_name!r}")
    module = import_module(module_name)
    if not hasattr(module, attribute):
        raise ConfigurationError(f"{name}: module {module_name!r} has no {attribute!r}")
    found = getattr(module, attribute)
    if not callable(found):
        return find_mode(found)
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise ConfigurationError(
            f"{name} cannot be called without arguments ({error}); name a mode, or a function that"
            " makes one"
        ) from error
    return find_mode(found())


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
