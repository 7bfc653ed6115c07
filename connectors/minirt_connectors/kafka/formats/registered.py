"""What formats with a schema registry have in common: each value begins with the id of its schema."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, MinirtError, SinkDataError
from minirt_connectors.kafka.formats.base import Format, Undecodable
from minirt_connectors.kafka.formats.registry import SchemaRegistry, registry_of, starting


class RegisteredFormat(Format):
    """A sink registers its schema for `subject`, by default `TOPIC-value`, or looks it up."""

    binary = True

    words: ClassVar[str]
    """What values are in, for messages."""

    def __init__(
        self, registry: str | SchemaRegistry, *, subject: str | None, register: bool
    ) -> None:
        self._registry = registry_of(registry)
        self._subject = subject
        self._register = register
        self._head = b""
        self._known: dict[int, Any] = {}
        """What the ids of schemas stand for; None for an id that the registry does not have."""

    def for_topic(self, topic: str, *, writing: bool) -> Format:
        self._registry.check()
        if not writing:
            if self._subject is not None or not self._register:
                raise ConfigurationError("subject and register have no effect on a source")
            return self
        ready = copy(self)
        with starting():
            ready._head = ready._begin_writing(self._subject or f"{topic}-value")
        return ready

    def decode(self, values: Sequence[bytes | None]) -> list[Any]:
        read = self._reader()
        good: list[Any] = []
        bad: list[tuple[int, str]] = []
        for place, value in enumerate(values):
            try:
                good.append(read(value))
            except MinirtError:
                raise
            except Exception as error:  # Readers raise whatever their parts do.
                bad.append((place, f"not valid {self.words} ({type(error).__name__}: {error})"))
        if bad:
            raise Undecodable(good, bad)
        return good

    def encode(self, batch: Batch, operator: str) -> list[bytes]:
        write = self._writer()
        values: list[bytes] = []
        for record in batch.rows().records:
            try:
                values.append(write(record))
            except Exception as error:  # Writers raise whatever their parts do.
                raise SinkDataError(
                    f"{operator}: a record does not fit {self._schema_in_words} "
                    f"({type(error).__name__}: {error}): {record!r:.500}"
                ) from error
        return values

    @abstractmethod
    def _begin_writing(self, subject: str) -> bytes:
        """Have a schema to write by; gives what stands in front of each value.

        Raises ConfigurationError, and StorageError where the registry is out of reach.
        """

    @abstractmethod
    def _reader(self) -> Callable[[bytes | None], Any]:
        """Makes a record of a value. What it raises says why the value does not parse."""

    @abstractmethod
    def _writer(self) -> Callable[[Any], bytes]:
        """Makes a value of a record. What it raises says why the record does not fit."""

    @property
    @abstractmethod
    def _schema_in_words(self) -> str: ...
