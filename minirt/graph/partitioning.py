"""What a job graph knows about a partitioning: the facts that it states of itself.

A partitioning is one file: how it wires subtasks, how it deals records, and what a restore may do with
those that were in flight. Planner, validation, plan printer and restore ask it and know no kind of
partitioning. A subclass that leaves out a fact which decides about data is refused at import.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from minirt.annotations import annotations_of
from minirt.errors import ConfigurationError
from minirt.graph.describe import describe_key
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import Form, Forms
from minirt.protocol.topology import InFlight, Order

if TYPE_CHECKING:  # The interface names what deals records; the graph never deals any.
    from minirt.partitionings.common.dealing import Dealer, DealingSite


class Wiring(Enum):
    """Which receivers a sender has channels to; the values are for people."""

    ALL_TO_ALL = "each sender to each receiver"
    POINTWISE = "each sender to some receivers, by the parallelism of both"
    ONE_TO_ONE = "each sender to the receiver of its index; parallelism must be equal"


class Partitioning(ABC):
    """How an edge deals records to the subtasks of the next operator. Subclasses are frozen dataclasses.

    A subclass must say these facts, as class variables or properties:

    `name`       what plans and checkpoints call it; what was in flight is found again by it
    `wiring`     which receivers a sender has channels to; POINTWISE says so in `receivers_of`
    `key`        how the key of a record is found; None if it looks at none
    `in_flight`  how captured records find their receivers at another parallelism
    `order()`    which records keep their order
    `unchained`  why no chain crosses it, in a plan's words; None, for ONE_TO_ONE, if a chain may

    It says in `among` how records are dealt. It is pickled into every worker.
    """

    name: ClassVar[str]
    wiring: ClassVar[Wiring]
    unchained: ClassVar[str | None]

    if TYPE_CHECKING:  # A property here would be the default of a field there.

        @property
        def key(self) -> KeySelector | None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Unpickling makes classes of the user's script empty at first, and fills them afterwards.
        if ABC not in cls.__bases__ and any(not name.startswith("__") for name in vars(cls)):
            cls.check_facts()

    @classmethod
    def facts(cls) -> tuple[str, ...]:
        """What a subclass must say."""
        pointwise = getattr(cls, "wiring", None) is Wiring.POINTWISE
        own = ("receivers_of",) if pointwise else ()
        return ("name", "wiring", "key", "in_flight", "order", "unchained", "among", *own)

    @classmethod
    def check_facts(cls) -> None:
        """Raise TypeError if a fact is missing."""
        missing = [fact for fact in cls.facts() if not _says(cls, fact)]
        if missing:
            raise TypeError(
                f"the partitioning {cls.__qualname__} does not say its {', '.join(missing)}"
            )

    # What it promises.

    @property
    @abstractmethod
    def in_flight(self) -> InFlight:
        """How captured records find their receivers if these, or the partitioning, are not the old ones.

        ONE_COPY says as well that every receiver gets every record.
        """

    @abstractmethod
    def order(self, senders: int, receivers: int) -> Order:
        """Which records of one sender keep their order; barriers overtake none that go STRAIGHT."""

    def receivers_of(self, sender: int, senders: int, receivers: int) -> range:
        """The subtasks that a sender has channels to."""
        if self.wiring is Wiring.ONE_TO_ONE:
            return range(sender, sender + 1)
        return range(receivers)

    def capturable(self, senders: int, receivers: int) -> bool:
        """Whether a barrier may overtake its records, which a restore then deals to their receivers.

        If it deals otherwise the second time, each receiver would keep others: some twice, some not at
        all. And where records go straight on, at another parallelism, a key's captured records would be
        in one subtask while its later records pass through another.
        """
        straight = self.order(senders, receivers) is Order.STRAIGHT
        return self.in_flight is not InFlight.UNCAPTURED and not straight

    def identity(self, max_parallelism: int) -> object | None:
        """What decides where a record goes: in-flight records are dealt again where it has changed.

        Its code, wherever that is its own, and its fields. None if name and wiring tell all.
        """
        return (type(self).among, self)

    # How it deals records.

    def dealer(self, site: DealingSite) -> Dealer:
        """What deals the records of one sender."""
        return self.to_one(site) if len(site.buffers) == 1 else self.among(site)

    @abstractmethod
    def among(self, site: DealingSite) -> Dealer:
        """What deals among several receivers."""

    def to_one(self, site: DealingSite) -> Dealer:
        """What deals to the only receiver: all goes there."""
        from minirt.partitionings.common.dealing import ToOne

        return ToOne(site)

    # What it is refused for.

    def check(self, schema: pa.Schema | None, label: str) -> None:
        """Raise ConfigurationError for what cannot work on a stream with these columns, if known."""

    # What people read.

    @property
    def described(self) -> str:
        """How records are dealt, in a plan: `rebalance`, `hash by origin`."""
        return self.name if self.key is None else f"{self.name} by {describe_key(self.key)}"

    @property
    def in_flight_described(self) -> str:
        """How captured records find their receivers, in a plan."""
        return self.in_flight.value

    @property
    def why_uncaptured(self) -> str:
        """Why no barrier overtakes records, in a plan, where that is not for their order."""
        return "its function is impure, it could not deal records again"

    @property
    def unordered(self) -> str:
        """How a user says that the order of records that go STRAIGHT does not matter; "" if one cannot."""
        return ""

    def crossing(self, arriving: Forms) -> str | None:
        """How it changes the form of records, and why; None if it does not."""
        if self.key is not None and self.key.function is not None and Form.COLUMNS in arriving:
            return "columns become rows for the key alone: it is found by a function"
        return None


def _says(cls: type, fact: str) -> bool:
    """Whether a class or one between it and the interface says a fact, or has a field for it."""
    for one in cls.__mro__[: cls.__mro__.index(Partitioning)]:
        said = vars(one).get(fact)
        if fact in vars(one) and not getattr(said, "__isabstractmethod__", False):
            return True
        if fact in annotations_of(one):
            return True
    return False


def check_wiring(partitioning: Partitioning, senders: int, receivers: int, label: str) -> None:
    """Raise ConfigurationError if what a partitioning says of an edge contradicts itself.

    Each of these would lose records, or their order, at a restore at the latest.
    """
    wiring, in_flight = partitioning.wiring, partitioning.in_flight
    order = partitioning.order(senders, receivers)
    problem = None
    if wiring is not Wiring.ALL_TO_ALL and in_flight in (InFlight.DEALT_AGAIN, InFlight.ONE_COPY):
        problem = f"in_flight {in_flight.name} needs ALL_TO_ALL wiring"
    elif order is Order.BY_KEY and in_flight in (InFlight.WHOLE_CHANNELS, InFlight.ONE_COPY):
        problem = "order BY_KEY is lost unless in-flight records are DEALT_AGAIN"
    elif partitioning.unchained is None and wiring is not Wiring.ONE_TO_ONE:
        problem = "only ONE_TO_ONE wiring may be chained, so it must say in unchained why it is not"
    elif wiring is not Wiring.ALL_TO_ALL:
        problem = _wiring_problem(partitioning, senders, receivers, order)
    elif order is Order.STRAIGHT:
        problem = "order STRAIGHT needs one receiver for each sender"
    if problem is not None:
        raise ConfigurationError(f"{label}: partitioning {partitioning.name}: {problem}")


def _wiring_problem(
    partitioning: Partitioning, senders: int, receivers: int, order: Order
) -> str | None:
    reached = [partitioning.receivers_of(sender, senders, receivers) for sender in range(senders)]
    for sender, found in enumerate(reached):
        if not found or not {*found} <= {*range(receivers)}:
            return f"sender {sender} of {senders} reaches {found} of {receivers} subtasks"
    missing = {*range(receivers)}.difference(*reached)
    if missing:
        return f"no sender reaches subtask {min(missing)} of {receivers}"
    if order is Order.STRAIGHT and any(len(found) > 1 for found in reached):
        return "order STRAIGHT needs one receiver for each sender"
    return None
