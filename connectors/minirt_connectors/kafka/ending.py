"""Ends transactions of other processes, and tells what has become of them.

The client that carries the data has no call for that, so requests go through kafka-python. Whoever knows
the id of a transaction, its producer and the epoch of that can end it (EndTxn). In the versions of requests
that are used here, which librdkafka uses as well, an epoch changes with `init_transactions` only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.kafka.cluster import START_TIMEOUT_S, Cluster
from minirt_connectors.kafka.login import login_of

T = TypeVar("T")

_ASKS_TO_INSTALL = (
    'delivery="direct" needs kafka-python, which is part of the extra "kafka": '
    'pip install "minirt[kafka]"'
)
_TRY_S = 30.0
_TELLS_REQUESTS = (
    "kafka.net.connection",
    "kafka.net.transport",
    "kafka.protocol.parser",
)
"""Loggers that tell, at level DEBUG, all that is sent: the password of a login too."""
_REQUEST_TIMEOUT_MS = 10_000
_FENCE_TIMEOUT_MS = 60_000
"""That of transactions that nobody begins: who fences a writer only ends what that has begun."""

ONGOING, COMMITTING, COMMITTED = "Ongoing", "PrepareCommit", "CompleteCommit"

_GONE = (
    "ProducerFencedError",
    "InvalidProducerEpochError",
    "InvalidTxnStateError",
    "InvalidProducerIdMappingError",
)
"""What a broker says of a transaction that it can commit no more."""

_LOGIN = (
    "SaslAuthenticationFailedError",
    "UnsupportedSaslMechanismError",
    "KafkaConfigurationError",
)


@dataclass(frozen=True, slots=True)
class Described:
    """What a broker says of a transactional id: the state of its transaction, and whose it is."""

    state: str
    producer: int
    epoch: int


class TransactionClient:
    """Asks the brokers about transactions, for one thread at a time. Connects with the first question.

    Raises ConfigurationError where brokers let nobody in or are too old, and StorageError for all else.
    """

    def __init__(self, cluster: Cluster, timeout_ms: int = _FENCE_TIMEOUT_MS) -> None:
        """`timeout_ms` is a timeout of transactions that the brokers allow."""
        self._cluster = cluster
        self._fence_timeout_ms = min(timeout_ms, _FENCE_TIMEOUT_MS)
        self._admin: Any = None

    def describe(self, ids: Collection[str]) -> dict[str, Described]:
        """What has become of the transactions of these ids."""

        def ask(admin: Any) -> dict[str, Described]:
            found = admin.describe_transactions(ids)
            return {
                id: Described(one.state.value, one.producer_id, one.producer_epoch)
                for id, one in found.items()
            }

        return self._asked("cannot ask about transactions", ask) if ids else {}

    def open_ones(self) -> list[str]:
        """The ids of all transactions that nobody has ended, as far as this user may know."""

        def ask(admin: Any) -> list[str]:
            found = admin.list_transactions(state_filters=[ONGOING])
            return [one.transactional_id for own in found.values() for one in own]

        return self._asked("cannot list transactions", ask)

    def commit(self, id: str, producer: int, epoch: int) -> bool:
        """Commit a transaction, unless it is already: False if it is ended otherwise, or forgotten."""
        from kafka.protocol.producer.transaction import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=id,
            producer_id=producer,
            producer_epoch=epoch,
            committed=True,
            max_version=3,
        )

        def ask(admin: Any) -> bool:
            error = _errors().for_code(self._sent(admin, id, request).error_code)
            if error.errno and error.__name__ not in _GONE:
                raise error
            return not error.errno

        return self._asked(f"cannot commit the transaction {id}", ask)

    def fence(self, id: str) -> None:
        """End the open transaction of this id without a commit; its producer cannot begin another one."""
        from kafka.protocol.producer.transaction import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=id,
            transaction_timeout_ms=self._fence_timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )

        def ask(admin: Any) -> None:
            error = _errors().for_code(self._sent(admin, id, request).error_code)
            if error.errno:
                raise error

        self._asked(f"cannot end the transaction {id}", ask)

    def settle(self, ids: Collection[str]) -> None:
        """Until readers see what was committed under these ids."""
        until = time.monotonic() + _TRY_S
        while any(one.state == COMMITTING for one in self.describe(ids).values()):
            if time.monotonic() > until:
                raise StorageError(
                    self._cluster.told("a commit does not come to its end", "timeout")
                )
            time.sleep(0.005)

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with suppress(Exception):
                admin.close()

    def _sent(self, admin: Any, id: str, request: Any) -> Any:
        """The answer of the broker that looks after the id."""
        from kafka.protocol.metadata import CoordinatorType

        async def send() -> Any:
            node = await admin._find_coordinator_id(id, CoordinatorType.TRANSACTION)
            return await admin._manager.send(request, node_id=node)

        return admin._manager.run(send)

    def _asked(self, action: str, ask: Callable[[Any], T]) -> T:
        """The answer, once there is one: brokers may be busy with the id, or hand it over."""
        errors = _errors()
        until = time.monotonic() + _TRY_S
        while True:
            try:
                return ask(self._connected())
            except (errors.KafkaError, OSError) as error:
                name = type(error).__name__
                problem = self._cluster.told(action, str(error))
                if isinstance(error, errors.AuthorizationError) or name in _LOGIN:
                    raise ConfigurationError(problem) from None
                if isinstance(error, errors.UnsupportedVersionError):
                    raise ConfigurationError(
                        f"{problem}: brokers of Kafka 3.0 or later are needed"
                    ) from None
                if name != "ConcurrentTransactionsError":
                    self.close()  # What it knows of the brokers may be out of date.
                lasting = isinstance(error, errors.KafkaError) and not error.retriable
                if lasting or time.monotonic() > until:
                    raise StorageError(problem) from None
            time.sleep(0.02)

    def _connected(self) -> Any:
        if self._admin is None:
            self._admin = _connect(self._cluster)
        return self._admin


def _connect(cluster: Cluster) -> Any:
    """A client that answers: one that does not is taken down with its thread."""
    _errors()
    for name in _TELLS_REQUESTS:
        logging.getLogger(name).addFilter(_tells_no_request)
    from kafka.admin import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient

    from minirt_connectors.kafka.closing import ClosingSocket

    made: list[Any] = []

    def make(**config: Any) -> Any:
        made.append(KafkaNetClient(**config))
        return made[0]

    try:
        return KafkaAdminClient(
            bootstrap_servers=cluster.name.split(","),
            client_id="minirt",
            kafka_client=make,
            proxy_url=ClosingSocket.URL,
            bootstrap_timeout_ms=int(START_TIMEOUT_S * 1000),
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            reconnect_backoff_max_ms=1000,
            **login_of(cluster.options),
        )
    except BaseException:
        for client in made:
            with suppress(Exception):
                client.close()
                client._manager._net.stop()
        raise


def _tells_no_request(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _errors() -> Any:
    try:
        import kafka.errors
    except ImportError as error:
        raise ConfigurationError(_ASKS_TO_INSTALL) from error
    return kafka.errors
