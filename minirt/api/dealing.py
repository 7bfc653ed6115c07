"""What is checked where a stream's records are dealt by a partitioning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from minirt.api.draft import Port
from minirt.api.keys import KeySpec, key_parts, routing_key
from minirt.errors import ConfigurationError
from minirt.graph.partitioning import Partitioning
from minirt.operators.common.checks import check_instance
from minirt.operators.common.functions import check_function, check_stable
from minirt.partitionings import PARTITIONINGS, Broadcast, Custom, Hash
from minirt.partitionings.common.by_key import PARTS_KEYS


def dealt_ports(ports: Iterable[Port], partitioning: Partitioning, label: str) -> tuple[Port, ...]:
    """The ports, dealt so. Raises ConfigurationError if they are dealt already."""
    ports = tuple(ports)
    for port in ports:
        if port.partitioning is not None:
            first, then = port.partitioning.described, partitioning.described
            raise ConfigurationError(
                f"{label}: its records are dealt twice, by {first} and then by {then}, which "
                "alone would count; leave one out"
            )
    return tuple(replace(port, partitioning=partitioning) for port in ports)


def is_broadcast(ports: Iterable[Port]) -> bool:
    """Whether each of these is dealt by `broadcast()`."""
    return all(isinstance(port.partitioning, Broadcast) for port in ports)


def uncaptured(ports: Iterable[Port]) -> tuple[Port, ...]:
    """The same broadcast ports, whose records no barrier overtakes."""
    return tuple(replace(port, partitioning=Broadcast(captured=False)) for port in ports)


def check_not_keyed(ports: Iterable[Port], label: str, instead: str) -> None:
    """Raises ConfigurationError if a key was given where it would have no effect."""
    for port in ports:
        if isinstance(port.partitioning, Hash):
            raise ConfigurationError(
                f"{label}: key_by has no effect before it ({port.partitioning.described}); leave "
                f"that out: {instead}"
            )


def custom(
    function: Callable[[object, int], int],
    key: KeySpec,
    pure: object,
    schema: pa.Schema | None,
    label: str,
) -> Custom:
    """The partitioning by a function of the user's. Raises ConfigurationError."""
    check_function(function, label, "the key", "the parallelism", returns="an index")
    if not isinstance(pure, bool):
        raise ConfigurationError(f"{label}: pure is True or False, not {pure!r}")
    partitioning = Custom(function, routing_key(key_parts(key), schema, label), pure)
    if pure:
        check_stable(function, label, PARTS_KEYS)
        partitioning.check(schema, label)
    return partitioning


def check_own(partitioning: object, schema: pa.Schema | None, label: str) -> None:
    """Raises ConfigurationError for what is no partitioning, or is called as one of minirt is."""
    check_instance(partitioning, Partitioning, label)
    assert isinstance(partitioning, Partitioning)
    partitioning.check_facts()
    name = partitioning.name
    if any(one.name == name and type(partitioning) is not one for one in PARTITIONINGS):
        raise ConfigurationError(
            f"{label}: {name!r} is the name of a partitioning of minirt, which checkpoints know it by; "
            f"call {type(partitioning).__name__} otherwise"
        )
    partitioning.check(schema, label)
