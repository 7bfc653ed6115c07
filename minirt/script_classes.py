"""Finds the classes of the job's script when a value of one of them is read.

Such a class travels by value, as no other process can import it. A value that a checkpoint holds brings
along the class as it was. Once the program was started again, that is another class than the one of the
script: `isinstance` is false, and a member of an Enum is none. So whoever reads values looks for the class
of the script that has its name, and takes the copy only if there is none.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from cloudpickle import cloudpickle

from minirt.monitoring.logs import logger_of

logger = logger_of("worker")

SCRIPTS = ("__main__", "__minirt_job__")
"""What the module of a script is called: run by Python, and run by the command line of minirt."""

_known: dict[tuple[str, str], WeakKeyDictionary[type, int]] = {}
"""The classes of jobs by module and qualified name, each with the number of the last job that had it."""

_names: WeakKeyDictionary[type, str] = WeakKeyDictionary()
"""By which names they came."""

_job = 0
"""The number of the job that was loaded last in this process."""

_missed: set[tuple[str, str]] = set()

Make = Callable[..., type]


def came_with_job(
    module: str, name: str, identity: str | None, make: Make, arguments: tuple[Any, ...]
) -> type:
    """Make a class that travels by value, or take the one that it became before, and know it by name."""
    made = make(*arguments)
    _known.setdefault((module, name), WeakKeyDictionary())[made] = _job
    _names[made] = name
    return made


def name_of(kind: type) -> str:
    """The name by which a class that travels by value is to be found.

    That is its qualified name, unless the script calls another class so: `dataclass(slots=True)` makes a
    second one, which refers to the first.
    """
    name, known = kind.__qualname__, _names.get(kind)
    if known is not None:
        return known
    return name if _in_module(kind.__module__, name) in (None, kind) else f"{name} (hidden)"


def load_job(data: bytes) -> Any:
    """What a pickle holds of a job. Values that are read from now on are of the classes that it brings."""
    global _job
    _job += 1
    return pickle.loads(data)


def fill_class(made: type, state: Any) -> type:
    """Give a class that `came_with_job` has made what it defines."""
    filled: type = cloudpickle._class_setstate(made, state)
    return filled


def load_value(data: bytes) -> Any:
    """The value of a pickle, of classes that the job's script has now. Raises what unpickling does."""
    with io.BytesIO(data) as file:
        return _ValueUnpickler(file).load()


def class_of_script(module: str, name: str, identity: str | None) -> type | None:
    """The class of this qualified name that the script defines now; None if that is not known.

    Where it defines several, as a function can, `identity` tells them apart. cloudpickle gives it to a
    class for as long as the program runs.
    """
    names = [(module, name)]
    if module in SCRIPTS:
        names += [(other, name) for other in SCRIPTS if other != module]
    of_job: list[type] = [
        known for each in names for known, job in [*_known.get(each, {}).items()] if job == _job
    ]
    if len(of_job) == 1:
        return of_job[0]
    for each in names:
        found = _in_module(*each)
        if found is not None:
            return found
    if identity is None:
        return None
    tracked: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity)
    return tracked


def _in_module(module: str, name: str) -> type | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


class _ValueUnpickler(pickle.Unpickler):
    """Reads values in the form of this version, and in that of versions whose classes told no full name."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._found: set[int] = set()
        """The ids of classes of the script, which are complete."""

    def find_class(self, module: str, name: str) -> Any:
        if module in _STAND_INS:
            stand_in = _STAND_INS[module].get(name)
            if stand_in is not None:
                return stand_in.__get__(self)
        return super().find_class(module, name)

    def _named(
        self,
        module: str,
        name: str,
        identity: str | None,
        make: Make,
        arguments: tuple[Any, ...],
    ) -> type:
        found = class_of_script(module, name, identity)
        if found is None:
            if _job and (module, name) not in _missed:
                _missed.add((module, name))
                logger.warning(
                    "a value that was stored is of the class %s.%s, which the job's script does not "
                    "define, or defines more than once: it comes with the class as it was then",
                    *(module, name),
                )
            return make(*arguments)
        self._found.add(id(found))
        return found

    def _class(
        self,
        kind: type,
        name: str,
        bases: tuple[type, ...],
        options: Mapping[str, Any],
        identity: str | None,
        extra: Any,
    ) -> type:
        """A class as cloudpickle stores it by itself."""
        module, arguments = (
            options.get("__module__", ""),
            (kind, name, bases, options, identity, extra),
        )
        return self._named(
            module, _full_name(module, name), identity, cloudpickle._make_skeleton_class, arguments
        )

    def _enum(
        self,
        bases: tuple[type, ...],
        name: str,
        full_name: str,
        members: Mapping[str, Any],
        module: str,
        identity: str | None,
        extra: Any,
    ) -> type:
        arguments = (bases, name, full_name, members, module, identity, extra)
        return self._named(module, full_name, identity, cloudpickle._make_skeleton_enum, arguments)

    def _filled(self, made: type, state: Any) -> type:
        return made if id(made) in self._found else fill_class(made, state)


def _full_name(module: str, name: str) -> str:
    """The qualified name of the only class of the job that is called so, else the name."""
    full = {
        known
        for (of, known), classes in _known.items()
        if known.rpartition(".")[2] == name
        and classes
        and (of == module or {of, module} <= {*SCRIPTS})
    }
    return full.pop() if len(full) == 1 else name


_OF_CLOUDPICKLE: Mapping[str, Callable[..., Any]] = {
    "_make_skeleton_class": _ValueUnpickler._class,
    "_make_skeleton_enum": _ValueUnpickler._enum,
    "_class_setstate": _ValueUnpickler._filled,
}
_STAND_INS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "cloudpickle.cloudpickle": _OF_CLOUDPICKLE,
    "minirt.script_classes": {
        "came_with_job": _ValueUnpickler._named,
        "fill_class": _ValueUnpickler._filled,
    },
}
"""By module and name, what is called in place of what a pickle names."""
