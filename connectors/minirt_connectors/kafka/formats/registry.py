"""A schema registry: which schema a number in front of a value stands for.

Values are in the wire format of Confluent: a zero byte, the id of a schema in four bytes, big-endian, and
what the schema describes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from minirt.errors import ConfigurationError, MinirtError, StorageError
from minirt_connectors.kafka.secrets import Secrets

TIMEOUT_S = 10
_RETRIES = 2
_MAGIC = 0
_HEAD = struct.Struct(">BI")

_NOT_FOUND, _MAY_PASS = 404, (408, 429)
"""Statuses of HTTP: nothing there; one that trying again may mend, as it may those from 500 on."""

_ASKS_TO_INSTALL = 'a schema registry needs the extra "registry": pip install "minirt[registry]"'


class SchemaRegistry:
    """Where a registry is, and the options of its client. Pickled into workers; says no secret.

    `options` go to the `SchemaRegistryClient` of confluent-kafka, such as `basic.auth.user.info` and
    `ssl.ca.location`.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("a schema registry is given as http://host:port")
        if options is not None and "url" in options:
            raise ConfigurationError('the option "url" of the registry is its first argument')
        self._options = {"timeout": TIMEOUT_S, "max.retries": _RETRIES, **(options or {})}
        self._url = url
        self._secrets = Secrets(self._options, parts.password or "")
        self.name = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.name!r}, options={sorted(self._options)})"

    def check(self) -> None:
        """Raises ConfigurationError if it does not answer, or lets nobody in."""
        with starting(), self._errors("does not answer"):
            self.client.get_schema_types()

    def schema(self, id: int, form: str | None = None) -> Any:
        """The schema of this id, None if there is none. Raises StorageError where that is not known."""
        return self._found(f"schema {id}", lambda: self.client.get_schema(id, fmt=form))

    def referred(self, reference: Any) -> Any:
        """The schema that another one refers to."""
        subject, version = reference.subject, reference.version
        action = f"version {version} of {subject!r}"
        return self._found(action, lambda: self.client.get_version(subject, version).schema)

    def latest(self, subject: str) -> tuple[int, Any]:
        """The newest schema of a subject, and its id. Raises ConfigurationError if there is none."""
        found = self._found(f"{subject!r}", lambda: self.client.get_latest_version(subject))
        if found is None:
            raise ConfigurationError(
                f"{self.name} has no schema for {subject!r}: give the format one, which it registers"
            )
        return found.schema_id, found.schema

    def id_of(self, subject: str, schema: Any, *, register: bool) -> int:
        """The id of a schema of this subject, which is registered if it may be.

        Raises ConfigurationError if the registry refuses it, or does not know it and must not learn it.
        """
        if register:
            with self._errors(f"refuses the schema for {subject!r}"):
                return int(self.client.register_schema(subject, schema))
        found = self._found(f"{subject!r}", lambda: self.client.lookup_schema(subject, schema))
        if found is None:
            raise ConfigurationError(
                f"{self.name} does not know this schema for {subject!r}, and register=False"
            )
        return int(found.schema_id)

    def version_of(self, subject: str, schema: Any) -> int:
        """The version of a schema that is registered."""
        with self._errors(f"cannot look up {subject!r}"):
            return int(self.client.lookup_schema(subject, schema).version)

    @property
    def client(self) -> Any:
        if self._client is None:
            try:
                from confluent_kafka.schema_registry import SchemaRegistryClient
            except ImportError as error:
                raise ConfigurationError(_ASKS_TO_INSTALL) from error
            try:
                self._client = SchemaRegistryClient({"url": self._url, **self._options})
            except (TypeError, ValueError, OSError) as error:
                said = self._secrets.hidden(str(error))
                raise ConfigurationError(
                    f"the options of the registry cannot work: {said}"
                ) from None
        return self._client

    def _found(self, what: str, ask: Any) -> Any:
        with self._errors(f"cannot get {what}"):
            try:
                return ask()
            except Exception as error:
                if getattr(error, "http_status_code", None) == _NOT_FOUND:
                    return None
                raise

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """StorageError for what trying again may mend, else ConfigurationError."""
        try:
            yield
        except MinirtError:
            raise
        except Exception as error:
            status = getattr(error, "http_status_code", None)
            if status is None and not type(error).__module__.startswith("httpx"):
                raise
            text = self._secrets.hidden(f"schema registry {self.name}: {action}: {error}")
            hopeless = status is not None and status < 500 and status not in _MAY_PASS
            raise (ConfigurationError if hopeless else StorageError)(text) from None


def registry_of(given: str | SchemaRegistry) -> SchemaRegistry:
    """A registry by its URL, or the given one."""
    return given if isinstance(given, SchemaRegistry) else SchemaRegistry(given)


@contextmanager
def starting() -> Iterator[None]:
    """What is out of reach while a job is built is refused then."""
    try:
        yield
    except StorageError as error:
        raise ConfigurationError(str(error)) from None


def head_of(id: int) -> bytes:
    """What stands in front of values of this schema."""
    return _HEAD.pack(_MAGIC, id)


def schema_id(value: bytes | None) -> int:
    """The id in front of a value. Raises ValueError where there is none."""
    if value is None:
        raise ValueError("there is no value")
    if len(value) < _HEAD.size or value[0] != _MAGIC:
        raise ValueError("it has no id of a schema in front")
    return int(_HEAD.unpack_from(value)[1])


HEAD_BYTES = _HEAD.size
