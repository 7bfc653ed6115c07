"""How to reach a Kafka cluster: options of the client, what is asked of it, what its errors mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from minirt.errors import ConfigurationError, MinirtError, StorageError
from minirt_connectors.kafka.repeats import Repeats
from minirt_connectors.kafka.secrets import Secrets

T = TypeVar("T")

_CONNECTIONS_END = (
    "it ends each connection, as a listener does that asks for TLS or a login (the option "
    "security.protocol)"
)
"""What it means if all connections are gone, and the client gives no reason."""

START_TIMEOUT_S = 8.0
"""For how long brokers may leave the first question of a job unanswered."""

_ASKS_TO_INSTALL = 'Kafka needs the extra "kafka": pip install "minirt[kafka]"'

_OURS = (
    "bootstrap.servers",
    "group.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "auto.offset.reset",
    "isolation.level",
    "transactional.id",
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "partitioner",
    "message.max.bytes",
    "delivery.report.only.error",
)
"""Options of the client on which the guarantees rest, or which have an option of minirt."""

_HOPELESS = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "UNSUPPORTED_SASL_MECHANISM",
    "INVALID_TRANSACTION_TIMEOUT",
    "UNKNOWN_TOPIC_OR_PART",
    "MSG_SIZE_TOO_LARGE",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "INVALID_MSG_SIZE",
    "INVALID_CONFIG",
    "POLICY_VIOLATION",
    "_AUTHENTICATION",
    "_SSL",
    "_INVALID_ARG",
    "_UNKNOWN_TOPIC",
)
"""The names of errors that the same request would meet again.

`_UNKNOWN_PARTITION` is none: the client says so, too, while a broker that has just stopped is away.
"""

_BUSY = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "_WAIT_COORD",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
)
"""The names of errors of brokers that are about to look after a group, as they do at its first use, or
after a partition, as they do when they have started."""


class Cluster:
    """Where brokers are, and the options of their client. Pickled into workers; says no secret."""

    def __init__(self, bootstrap: str, options: Mapping[str, Any] | None) -> None:
        if not isinstance(bootstrap, str) or not bootstrap.strip():
            raise ConfigurationError("Kafka brokers are given as host:port,host:port")
        self._options = dict(options or {})
        for name in self._options:
            if not isinstance(name, str):
                raise ConfigurationError(
                    f"options of the Kafka client have text as names: {name!a}"
                )
            if name in _OURS:
                raise ConfigurationError(
                    f"the option {name!r} of the Kafka client is set by minirt"
                )
        self.name = bootstrap
        self._secrets = Secrets(self._options)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the client that users have given, secrets among them."""
        return self._options

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, options={sorted(self._options)})"

    @contextmanager
    def errors(
        self, action: str, hopeless: type[MinirtError] = ConfigurationError
    ) -> Iterator[None]:
        """Errors of the client as those of minirt: `hopeless` where trying again would not help."""
        kafka = _client()
        try:
            yield
        except MinirtError:
            raise
        except kafka.KafkaException as error:
            raise self.error(action, error.args[0], hopeless) from None

    def error(
        self, action: str, error: Any, hopeless: type[MinirtError] = ConfigurationError
    ) -> MinirtError:
        """The error of minirt for a `KafkaError`."""
        text = self.told(action, error.str())
        return hopeless(text) if error.name() in _HOPELESS else StorageError(text)

    def answer(self, action: str, ask: Callable[[], T], wait_s: float) -> T:
        """What brokers answer. Asks again for a while if they are about to look after what is asked for."""
        kafka = _client()
        end = time.monotonic() + wait_s
        while True:
            try:
                return ask()
            except kafka.KafkaException as error:
                if error.args[0].name() not in _BUSY or time.monotonic() > end:
                    raise self.error(action, error.args[0]) from None
            time.sleep(0.1)

    def told(self, action: str, problem: str) -> str:
        """What a message says of a problem with these brokers, in one line without secrets."""
        return self._secrets.hidden(f"Kafka at {self.name}: {action}: {problem}")

    def consumer(self, options: Mapping[str, Any] | None = None, heard: Heard | None = None) -> Any:
        """A consumer that is assigned partitions, never subscribes, and never moves an offset by itself."""
        fixed = {
            "group.id": "minirt",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
        return self._made("Consumer", {**fixed, **(options or {})}, heard)

    def producer(self, options: Mapping[str, Any], heard: Heard) -> Any:
        fixed = {"enable.idempotence": True, "acks": "all", "delivery.report.only.error": True}
        return self._made("Producer", {**fixed, **options}, heard)

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        with self._making():
            return AdminClient(self._config({}), logger=_LOGGER)

    def topic(self, name: str) -> int:
        """How many partitions a topic has. Raises ConfigurationError where that cannot be had, in time."""
        heard = Heard()
        consumer = self.consumer(heard=heard)
        try:
            return self._partitions(consumer, heard, name)
        finally:
            consumer.close()

    def answers(self) -> None:
        """Raises ConfigurationError if no broker answers in time, or it lets nobody in."""
        heard = Heard()
        consumer = self.consumer(heard=heard)
        try:
            self._metadata(consumer, heard, None, time.monotonic() + START_TIMEOUT_S)
        finally:
            consumer.close()

    def bounds(self, consumer: Any, places: Iterable[tuple[str, int]]) -> list[tuple[int, int]]:
        """The first offset that there is of each partition, and the one behind its last record."""
        return [
            self.answer(
                f"cannot ask for the offsets of {topic!r}",
                partial(
                    consumer.get_watermark_offsets,
                    _client().TopicPartition(topic, number),
                    START_TIMEOUT_S,
                ),
                START_TIMEOUT_S,
            )
            for topic, number in places
        ]

    def holds_records(self, topic: str) -> bool:
        """Whether there are records in any partition of a topic."""
        count = self.topic(topic)
        consumer = self.consumer()
        try:
            bounds = self.bounds(consumer, [(topic, number) for number in range(count)])
            return any(low < high for low, high in bounds)
        finally:
            consumer.close()

    def _partitions(self, consumer: Any, heard: Heard, name: str) -> int:
        kafka = _client()
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            found = self._metadata(consumer, heard, name, end).topics[name]
            if found.error is None:
                return len(found.partitions)
            waiting = found.error.code() == kafka.KafkaError.LEADER_NOT_AVAILABLE
            if not waiting or time.monotonic() > end:
                missing = found.error.name() == "UNKNOWN_TOPIC_OR_PART"
                problem = "there is none; create it first" if missing else found.error.str()
                raise ConfigurationError(self.told(f"cannot use the topic {name!r}", problem))
            time.sleep(0.1)

    def _metadata(self, consumer: Any, heard: Heard, name: str | None, end: float) -> Any:
        """What the first broker to answer says of a topic, or of all."""
        kafka = _client()
        while True:
            consumer.poll(0)
            if heard.refused is not None:
                raise self.error("cannot log in", heard.refused)
            try:
                return consumer.list_topics(name, timeout=1.0)
            except kafka.KafkaException as error:
                if time.monotonic() > end:
                    problem = heard.problem or error.args[0].str()
                    action = f"no broker answers within {START_TIMEOUT_S:g} s"
                    raise ConfigurationError(self.told(action, problem)) from None

    def _made(self, kind: str, options: dict[str, Any], heard: Heard | None) -> Any:
        kafka = _client()
        if heard is not None:
            options["error_cb"] = heard.take
        with self._making():
            return getattr(kafka, kind)(self._config(options), logger=_LOGGER)

    def _config(self, options: Mapping[str, Any]) -> dict[str, Any]:
        quick = {"socket.connection.setup.timeout.ms": 5000, "reconnect.backoff.max.ms": 1000}
        own = {"bootstrap.servers": self.name, "client.id": "minirt", "log_level": 4}
        return {**own, **quick, **self._options, **options}

    @contextmanager
    def _making(self) -> Iterator[None]:
        kafka = _client()
        try:
            yield
        except (kafka.KafkaException, TypeError, ValueError) as error:
            text = error.args[0].str() if isinstance(error, kafka.KafkaException) else str(error)
            raise ConfigurationError(
                self._secrets.hidden(f"the options of the Kafka client cannot work: {text}")
            ) from None


class Heard:
    """What a client says of its connections, which it tries again for as long as it lives."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """Why there is no connection, as far as anybody says."""
        self.refused: Any = None
        """That it may not log in, which trying again does not mend."""

    def take(self, error: Any) -> None:
        text = error.str()
        if error.name() == "_ALL_BROKERS_DOWN":
            self.problem = self.problem or _CONNECTIONS_END
        elif "in state UP" in text:
            self.problem = f"{text}: {_CONNECTIONS_END}"
        else:
            self.problem = text
        if error.name() in ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"):
            self.refused = error


def _client() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise ConfigurationError(_ASKS_TO_INSTALL) from error
    return confluent_kafka


_LOGGER = logging.getLogger("minirt.kafka")
_LOGGER.addFilter(Repeats())
