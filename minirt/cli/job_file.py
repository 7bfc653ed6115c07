"""Loads the Python file of a job and takes the environment that it defines."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import cloudpickle

from minirt.errors import ConfigurationError, MinirtError, UserCodeError

if TYPE_CHECKING:
    from minirt.api.environment import Environment

_MODULE = "__minirt_job__"
"""What `__name__` is in the file: not "__main__", so that its guarded part does not run."""


def load_environment(target: str, parallelism: int | None = None) -> Environment:
    """The environment of `job.py`, or of `job.py:NAME` if the file defines several.

    The file is run anew by each call, with its folder on the import path. `parallelism` takes the place
    of the default that its environments state. Functions and classes of the file travel to workers
    by value, as those of a program that is run directly.

    Raises ConfigurationError naming file and line if there is no such environment, UserCodeError with
    the traceback if the file raises.
    """
    path, name = _split(target)
    code = _compiled(path)
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    cloudpickle.register_pickle_by_value(module)
    _run(code, module, path, parallelism)
    return _chosen(vars(module), name, path)


def _split(target: str) -> tuple[Path, str | None]:
    file, colon, name = target.rpartition(":")
    if not colon or os.path.exists(target):
        file, name = target, ""
    path = Path(file).absolute()
    if os.path.isdir(path):
        raise ConfigurationError(f"{file} is a folder; name the Python file of the job")
    return path, name if file != target else None


def _compiled(path: Path) -> CodeType:
    try:
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"cannot read the job {str(path)!r}: {why}") from error
    try:
        return compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise ConfigurationError(
            f"{path}:{error.lineno}: {error.msg}" + (f": {line}" if line else "")
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigurationError(f"{path} is no Python: {error}") from error


def _run(code: CodeType, module: ModuleType, path: Path, parallelism: int | None) -> None:
    from minirt.api.launch import loading

    try:
        with loading(parallelism), _arguments(path):
            exec(code, vars(module))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}:{_line(error, path)}: {error}") from error
    except SystemExit as error:
        raise ConfigurationError(
            f"{path}:{_line(error, path)}: the file exits while it is loaded; put what only a program "
            'should do below `if __name__ == "__main__":`'
        ) from error
    except MinirtError:
        raise
    except Exception as error:
        shown = "".join(traceback.format_exception(error.with_traceback(_theirs(error, path))))
        raise UserCodeError(f"{path} raised while it was loaded\n{shown.rstrip()}") from error


@contextmanager
def _arguments(path: Path) -> Iterator[None]:
    """The file sees itself called without arguments."""
    ours, sys.argv = sys.argv, [str(path)]
    try:
        yield
    finally:
        sys.argv = ours


def _theirs(error: BaseException, path: Path) -> TracebackType | None:
    """The traceback from where the file begins."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    return trace


def _line(error: BaseException, path: Path) -> int:
    trace = _theirs(error, path)
    return 0 if trace is None else trace.tb_lineno


def _chosen(defined: Mapping[str, Any], name: str | None, path: Path) -> Environment:
    from minirt.api.environment import Environment
    from minirt.settings.catalogue import nearest

    found = {key: value for key, value in defined.items() if isinstance(value, Environment)}
    if name is not None:
        if name in found:
            return found[name]
        raise ConfigurationError(f"{path} defines no Environment {name!r}{nearest(name, found)}")
    different = {id(env): key for key, env in found.items()}
    if not different:
        raise ConfigurationError(
            f"{path} defines no Environment at its top level; write `env = minirt.Environment(...)` there"
        )
    if len(different) > 1:
        names = ", ".join(sorted(different.values()))
        raise ConfigurationError(
            f"{path} defines several environments, {names}; say which: "
            f"{path.name}:{sorted(different.values())[0]}"
        )
    return next(iter(found.values()))
