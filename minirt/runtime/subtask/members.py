"""The members of a subtask: all that may have state, each under its uid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from minirt.data.errors import UnsupportedRecordError
from minirt.errors import UnsupportedValueError
from minirt.io.base import Prepared
from minirt.monitoring.logs import logger_of
from minirt.operators.common.base import Member
from minirt.operators.common.calling import Opening, Reaching, ends_program
from minirt.protocol.manifest import Reference
from minirt.state.sections import Section
from minirt.state.stored import UID_SEPARATOR

logger = logger_of("worker")


class Members:
    """The input if it reads a source, and the operators, in the order in which records pass them."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._places: dict[str, int] = {}
        """By file that a snapshot may build on: its place among all that were stored. Names do not tell it:
        ids of local snapshots are above those of all checkpoints."""
        self._files = 0

    def open(self) -> None:
        """Open from the end, so that nobody emits into an operator that is not yet open."""
        for member in reversed(self._members):
            with Opening(member.ctx.label):
                member.open()

    def snapshot(self) -> dict[str, Section]:
        """The state of all operators by uid and section. Raises UnsupportedValueError if it has no form.

        To make a section later may raise the same.
        """
        sections: dict[str, Section] = {}
        for member in self._members:
            uid, label = member.ctx.uid, member.ctx.label
            with _storing(label):
                own = member.snapshot()
            sections |= {
                f"{uid}{UID_SEPARATOR}{name}": _labelled(section, label)
                for name, section in own.items()
            }
        return sections

    def references(self) -> tuple[Reference, ...]:
        """What the last snapshot builds on, oldest first."""
        sections: dict[str, list[str]] = {}
        for member in self._members:
            for name, paths in member.builds_on().items():
                for path in paths:
                    own = sections.setdefault(path, [])
                    own.append(f"{member.ctx.uid}{UID_SEPARATOR}{name}")
        self._places = {path: self._places[path] for path in sections}
        return tuple(
            Reference(path, tuple(sections[path]))
            for path in sorted(sections, key=self._places.__getitem__)
        )

    def on_stored(self, path: str) -> None:
        """The last snapshot is in this file."""
        self._note(path)
        for member in self._members:
            member.on_stored(path)

    def _note(self, path: str) -> None:
        """The file is the newest, unless it is known."""
        if path not in self._places:
            self._places[path] = self._files
            self._files += 1

    def release(self) -> None:
        """What sinks hold back is to be part of the next `prepare`."""
        for member in self._members:
            member.release()

    def prepare(self, checkpoint_id: int) -> list[tuple[str, Prepared]]:
        """The pending output of the chain's sink, if it has one, with its uid."""
        prepared = [(one.ctx.uid, one.prepare(checkpoint_id)) for one in self._members]
        return [(uid, output) for uid, output in prepared if output is not None]

    def restore(
        self, uid: str, sections: Mapping[str, bytes], *, exact: bool, path: str | None
    ) -> None:
        """Give an operator what an old snapshot holds of it. The oldest files come first.

        `path` is the file that later snapshots may refer to for just this, None if there is none.
        """
        if path is not None:
            self._note(path)
        prefix = uid + UID_SEPARATOR
        own = {
            name[len(prefix) :]: data for name, data in sections.items() if name.startswith(prefix)
        }
        member = next(one for one in self._members if one.ctx.uid == uid)
        if own:
            member.restore(own, exact=exact)
            if path is not None:
                member.on_stored(path)

    def close(self) -> None:
        """Close all operators. Errors are logged: there is nothing left that a restart would mend."""
        for member in self._members:
            try:
                member.close()
            except BaseException as error:
                if ends_program(error):
                    raise
                label = member.ctx.label
                logger.error("operator %s could not be closed: %r", label, error, exc_info=error)


@contextmanager
def _storing(label: str) -> Iterator[None]:
    try:
        with Reaching(f"state of operator {label}", "could not be stored"):
            yield
    except UnsupportedRecordError as error:
        raise UnsupportedValueError(f"state of operator {label}: {error}") from error


def _labelled(section: Section, label: str) -> Section:
    """The same section; an error that arises when it is made names the operator."""
    if not callable(section):
        return section
    make = section

    def made() -> bytes:
        with _storing(label):
            return make()

    return made
