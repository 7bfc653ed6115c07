"""What a job graph knows about an operator: the facts that its spec states, and the checks that it makes.

An operator is one file: a spec, which the user's job carries, and what runs. Planner, validation, plan
printer and chain ask the spec and know no kind of operator. A subclass that leaves out a fact which
decides about data is refused at import.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.io.base import Sink, Source

if TYPE_CHECKING:  # The interface names what a spec builds; the graph never builds it.
    from minirt.data.batch import Columns
    from minirt.operators.common.base import Operator, OperatorContext
    from minirt.operators.common.filling import StateFilling
    from minirt.watermarks import Watermarks


class StateDealing(Enum):
    """What becomes of an operator's state when a job is restored, also at another parallelism."""

    NONE = "it keeps no state"
    BY_KEY_GROUP = "each subtask takes the state of its own keys"
    BY_OPERATOR = "each subtask sees the state of all old ones and takes what was dealt to it"
    TO_ALL = "as BY_OPERATOR, also where nothing was rescaled"


class Form(Enum):
    """In which form records travel."""

    ROWS = "rows"
    COLUMNS = "columns"


Thinning: TypeAlias = "Callable[[Columns], Columns]"
"""Leaves some records of a batch out, and keeps the others in their order."""

Forms = Set[Form]
"""The forms in which records may come: both, where a union brings rows and columns together."""


@dataclass(frozen=True, slots=True)
class Site:
    """The place of an operator in a job, as far as that is known when the user writes it down.

    `behind`, `keys` and `schemas` are those of its inputs: what messages call the stream that leads into
    one; None for an input that is not keyed, or whose columns are unknown.
    """

    label: str
    behind: tuple[str, ...] = ()
    keys: tuple[KeySelector | None, ...] = ()
    schemas: tuple[pa.Schema | None, ...] = ()

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the only input."""
        return self.schemas[0] if len(self.schemas) == 1 else None


@dataclass(frozen=True, slots=True)
class Gathering:
    """Batches of `size` records, or of what there is `wait_s` seconds after the first of them.

    Each is processed as a `whole`, or in pieces of whatever size suits the runtime. Event time never comes
    before the records that it came behind, but perhaps after some that came behind it.
    """

    size: int
    wait_s: float = 0.0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What an operator without inputs reads, how event time is told, and at which multiple of it."""

    source: Source
    watermarks: Watermarks | None = None
    speed: float | None = None
    """None is as fast as possible."""

    @property
    def by_event_time(self) -> bool:
        """Whether a subtask reads its splits side by side because their records have event time."""
        source = self.source
        return self.watermarks is not None and source.bounded and source.interleave is None


class OperatorSpec(ABC):
    """One operator of a job, as the user asked for it. Subclasses are frozen dataclasses.

    A subclass must say these facts, as class variables or properties:

    `kind`    what the operator does, in a word
    `inputs`  how many inputs it has, 0 for a source; several streams may lead into one
    `state`   what becomes of its state at a restore
    `takes`   the form that it turns its records into; None if it takes them as they come

    It says in `build` what runs in a subtask; without inputs, in `reading` what is read there.
    """

    kind: ClassVar[str]
    inputs: ClassVar[int]
    state: ClassVar[StateDealing]

    without_key: ClassVar[Set[int]] = frozenset()
    """The inputs whose records have no key, though the state of others is kept by theirs."""

    emits: ClassVar[bool] = True
    """Whether another operator must follow."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Unpickling makes classes of the user's script empty at first, and fills them afterwards.
        if ABC not in cls.__bases__ and any(not name.startswith("__") for name in vars(cls)):
            cls.check_facts()

    @classmethod
    def check_facts(cls) -> None:
        """Raise TypeError if a fact is missing."""
        missing = [fact for fact in ("kind", "inputs", "state") if not hasattr(cls, fact)]
        if cls.takes is OperatorSpec.takes:
            missing.append("takes")
        work = "build" if getattr(cls, "inputs", 1) else "reading"
        if getattr(cls, work) is getattr(OperatorSpec, work):
            missing.append(work)
        if missing:
            raise TypeError(
                f"the operator {cls.__qualname__} does not say its {', '.join(missing)}"
            )

    @property
    @abstractmethod
    def takes(self) -> Form | None:
        """The form that it turns its records into; None if it takes them as they come."""

    def build(self, ctx: OperatorContext) -> Operator:
        """What runs in one subtask."""
        raise NotImplementedError(f"a {self.kind} runs no operator")

    @property
    def reading(self) -> Reading | None:
        """What is read in the subtasks of an operator without inputs."""
        return None

    @property
    def in_arrays(self) -> bool:
        """Whether it makes arrays of Arrow from Python objects: Arrow imports pandas for that."""
        return self.takes is Form.COLUMNS

    def thinning(self, key: KeySelector) -> Thinning | None:
        """What senders leave out of the columns that they deal here by this key; None if nothing.

        It may leave out records that have no effect behind the others of their batch, and nobody may depend
        on which those are: batches differ from run to run.
        """
        return None

    def columns_read(self, key: KeySelector, tags: Set[str]) -> Set[str] | None:
        """The columns that it looks at, of records that come to its only input by this key; None for all.

        Senders leave the others out. `tags` are those of the side outputs that somebody takes.
        """
        return None

    @property
    def queue_s(self) -> float | None:
        """How long the data in the channels into its chain should last, in seconds, unless options say so.

        None leaves that to the options of the job.
        """
        return None

    @property
    def repeats(self) -> bool:
        """Whether it gives the same records in the same order if it gets the same ones again, however these
        are cut into batches. Functions of the user are taken for deterministic."""
        return False

    @property
    def repeats_batches(self) -> bool:
        """Whether it does so if it gets the same batches, and event time advances between the same ones.

        With `by_clock`, also if the clock shows the same whenever it is asked, and what is due by it is
        done between the same ones.
        """
        return self.repeats

    @property
    def by_clock(self) -> bool:
        """Whether what it gives out may depend on the clock."""
        return False

    @property
    def needs_event_time(self) -> bool:
        """Whether it goes by watermarks, and so must stand behind sources that give them."""
        return False

    @property
    def late_after_ms(self) -> int | None:
        """How far behind the watermark a record may be before it is late and left out; None if none is."""
        return None

    takes_lateness: ClassVar[bool] = False
    """Whether the option `allowed_lateness` says so."""

    # What it is called.

    @property
    def subject(self) -> str | None:
        """The part of its default name behind its kind, such as the function that it calls."""
        return None

    @property
    def default_name(self) -> str:
        """Its name unless the user gives one: `map: parse`, `ParquetSource`, `filter`."""
        return f"{self.kind}: {self.subject}" if self.subject else self.kind

    @property
    def details(self) -> str:
        """What the plan says about it besides its name; each detail begins with a comma."""
        return ""

    # What it is refused for.

    def check(self, site: Site) -> None:
        """Raise ConfigurationError for what cannot work there, as soon as it is written down."""

    def validate(self, label: str) -> None:
        """Raise ConfigurationError for what the world does not allow, when the job is complete."""

    @property
    def owned(self) -> object | None:
        """The user's object that may work for this operator only, as it holds what is under way."""
        return None

    # What it takes and gives.

    def output_schema(self, site: Site) -> pa.Schema | None:
        """The columns of its output; None if they are unknown before it runs."""
        return None

    @property
    def gathers(self) -> Gathering | None:
        """The batches that it asks for; it then begins a chain of its own. None if any will do."""
        return None

    def side_output(self, tag: str, label: str) -> Form:
        """The form of a side output's records. Raises ConfigurationError if it has none of that tag."""
        raise ConfigurationError(f"{label} has no side outputs")

    def crossing(self, arriving: Forms, schema: pa.Schema | None) -> str | None:
        """How it changes the form of its records, and why; None if it does not."""
        turned = arriving - {self.takes}
        if self.takes is None or not turned:
            return None
        [form] = turned
        return f"{form.value} become {self.takes.value}: {self.reason}"

    def gives(self, arriving: Forms, schema: pa.Schema | None) -> Forms:
        """The forms in which its records leave; `schema` is that of its output."""
        return arriving if self.takes is None else {self.takes}

    @property
    def reason(self) -> str:
        """Why it takes one form only."""
        does = "computes on columns" if self.takes is Form.COLUMNS else "looks at each record"
        return f"{self.kind} {does}"

    def filling(self, site: Site, output: pa.Schema | None) -> StateFilling | None:
        """What makes its state from data that no job has processed; None if nothing can.

        `output` are the columns of its output, where known.
        """
        return None

    # The ends of a job.

    @property
    def reads_from(self) -> Source | None:
        """The source of an operator without inputs."""
        return None if self.reading is None else self.reading.source

    @property
    def writes_to(self) -> Sink | None:
        """The sink that its output goes to, if it has one."""
        return None

    @property
    def timeless(self) -> bool:
        """Whether the records of a source have no event time."""
        return self.reading is not None and self.reading.watermarks is None


def class_name(value: object) -> str:
    """The name of a class or of that of an object."""
    return value.__name__ if isinstance(value, type) else type(value).__name__


def function_name(function: Any) -> str | None:
    """The name of a function or of the class of a callable object; None if there is none."""
    if isinstance(function, functools.partial):
        return function_name(function.func)
    if not callable(function):
        return None
    name: str = getattr(function, "__name__", "") or type(function).__name__
    return None if name == "<lambda>" else name
