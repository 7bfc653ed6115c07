"""The servers that benchmarks of connectors need: one that was named, or one of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kafka_broker(bootstrap: str | None) -> Iterator[str]:
    """Where a broker is: `bootstrap`, or one that lives as long as the block, with the default JVM."""
    if bootstrap is not None:
        yield bootstrap
        return
    from tests.kafka.broker import Broker, classes
    from tests.servers import running

    class_path = classes()
    if class_path is None:
        raise SystemExit("there is no broker: name one by --bootstrap, or run .ci/install-services")
    with running("kafka", lambda folder: Broker(folder, class_path, jvm=("-Xmx1g",))) as broker:
        yield broker.bootstrap


@contextmanager
def postgres_server(uri: str | None) -> Iterator[str]:
    """The address of a database: `uri`, or that of a server that lives as long as the block."""
    if uri is not None:
        yield uri
        return
    from tests.postgres.server import Postgres, programs
    from tests.servers import running

    bin = programs()
    if bin is None:
        raise SystemExit("there is no PostgreSQL server: name one by --uri, or install one")
    with running("postgres", lambda folder: Postgres(folder, bin)) as server:
        yield server.uri
