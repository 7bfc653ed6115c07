"""The columns of joins: which there are, the keys of both sides, and records of both side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.column_keys import check_key_type, hash_columns
from minirt.data.errors import UnlikeTypesError
from minirt.data.hashing import U64
from minirt.data.simple_columns import simple, simple_type
from minirt.data.unify import unified_schema, unified_type, widened, widened_table
from minirt.errors import ConfigurationError, UserCodeError

LEFT, RIGHT = 0, 1
SIDES = "left", "right"

_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool], pa.DataType], ...] = (
    ("boolean", pa.types.is_boolean, pa.bool_()),
    ("unsigned 64-bit integer", pa.types.is_uint64, pa.uint64()),
    ("integer", pa.types.is_integer, pa.int64()),
    ("string", pa.types.is_string, pa.large_string()),
    ("string", pa.types.is_large_string, pa.large_string()),
    ("binary", pa.types.is_binary, pa.large_binary()),
    ("binary", pa.types.is_large_binary, pa.large_binary()),
    ("binary", pa.types.is_fixed_size_binary, pa.large_binary()),
    ("date", pa.types.is_date, pa.date32()),
)
"""What keys can be: types of one name can equal each other, once they are cast to the last one.

Times are compared in their own units.
"""


def key_kind(type: pa.DataType) -> tuple[str, pa.DataType] | None:
    """What keys of this type are compared as; None if they are all null."""
    type = simple_type(type)
    if pa.types.is_null(type):
        return None
    if pa.types.is_timestamp(type):
        zone = "with a zone" if type.tz else "without a zone"
        return f"timestamp {zone}", pa.timestamp(type.unit, "UTC" if type.tz else None)
    for name, check, compared in _KINDS:
        if check(type):
            return name, compared
    raise ConfigurationError(check_key_type(type) or f"columns of type {type} cannot be keys")


def key_misfit(keys: Sequence[Sequence[str]], schemas: Sequence[pa.Schema | None]) -> str | None:
    """Why the keys of both sides, as far as their columns are known, can never be equal; None if they can.

    Raises ConfigurationError for a type that cannot be a key.
    """
    left, right = schemas
    if left is None or right is None:
        return None
    for one, other in zip(*keys, strict=True):
        types = left.field(one).type, right.field(other).type
        kinds = [key_kind(type) for type in types]
        names = [None if kind is None else kind[0] for kind in kinds]
        if None not in names and names[0] != names[1]:
            return (
                f"key column {one!r} of the left is of type {types[0]} and {other!r} of the right of "
                f"type {types[1]}: no key of one side can equal one of the other; cast one of them"
            )
    return None


class JoinColumns:
    """The columns of results: those of the left, then those of the right.

    A key column that is called alike on both sides is there once, with the key of the side that there is.
    Another column of the right whose name the left has gets a suffix.
    """

    def __init__(
        self, keys: tuple[tuple[str, ...], tuple[str, ...]], suffix: str, *, right_alone: bool
    ) -> None:
        """`right_alone`: records of the right can be results without one of the left."""
        self._keys = keys
        self._right_alone = right_alone
        self._suffix = suffix
        self._shared = {one for one, other in zip(*keys, strict=True) if one == other}
        self._known: tuple[pa.Schema | None, pa.Schema | None, pa.Schema] | None = None
        """The columns of both sides that came last, and those of the results."""

    def schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema:
        """Raises ConfigurationError if two columns would have one name. None stands for no columns yet."""
        left, right = (pa.schema([]) if one is None else one for one in (left, right))
        shared = self._shared
        fields = [self._field(each, right) for each in left]
        if not left.names:
            fields += [right.field(name) for name in self._keys[LEFT] if name in shared]
        names = set(left.names) | shared
        for each in right:
            if each.name in shared:
                continue
            name = each.name + self._suffix if each.name in names else each.name
            if name in names:
                raise ConfigurationError(
                    f"two columns of the result would be called {name!r}; rename one with select, or give "
                    "another suffix"
                )
            names.add(name)
            fields.append(pa.field(name, each.type))
        return pa.schema(fields)

    def side_by_side(
        self,
        of_left: pa.Schema | None,
        of_right: pa.Schema | None,
        left: pa.RecordBatch | None,
        right: pa.RecordBatch | None,
    ) -> pa.RecordBatch:
        """Records of both sides, which have these columns, as results; None for a side stands for nulls."""
        schema = self._schema_of(of_left, of_right)
        count = left.num_rows if left is not None else right.num_rows if right is not None else 0
        sources: dict[str, pa.Array] = {}
        if right is not None:
            known = self._shared.union(() if of_left is None else of_left.names)
            for name, column in zip(right.schema.names, right.columns, strict=True):
                own = name + self._suffix if name in known and name not in self._shared else name
                sources[own] = column
        if left is not None:
            sources |= dict(zip(left.schema.names, left.columns, strict=True))
        columns = [_as_column(sources.get(each.name), each, count) for each in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _schema_of(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema:
        """As `schema`, which is worked out anew only where the columns are others."""
        if self._known is None or self._known[0] is not left or self._known[1] is not right:
            self._known = left, right, self.schema(left, right)
        return self._known[2]

    def _field(self, field: pa.Field, right: pa.Schema) -> pa.Field:
        """A column of the left; the type of a key may be known from the right only."""
        is_key = field.name in self._shared and field.name in right.names
        if is_key and (self._right_alone or pa.types.is_null(field.type)):
            of_right = right.field(field.name).type
            return field.with_type(unified_type(field.type, of_right, field.name))
        return field


def _as_column(array: pa.Array | None, field: pa.Field, count: int) -> pa.Array:
    if array is None:
        return pa.nulls(count, field.type)
    return widened(array, field.type, field.name)


class SideColumns:
    """The columns that the records of one side have had so far; `side` is what messages call it."""

    def __init__(self, side: str, keys: Sequence[str], label: str) -> None:
        self._side = side
        self._keys = keys
        self._label = label
        self.of_rows = False
        """Whether any of the records were rows: then a dict among their values gets no more fields."""
        self.schema: pa.Schema | None = None

    def begin(self, schema: pa.Schema) -> None:
        """The columns are known before the first record."""
        self.schema = simple_schema(schema)

    def fitting(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The records with all columns known; columns that are new become known.

        Raises UserCodeError for a column whose type does not go with what it had.
        """
        for name in self._keys:
            if name not in table.schema.names:
                raise UserCodeError(
                    f"operator {self._label}: a batch of the {self._side} has no key column "
                    f"{name!r}, only {', '.join(table.schema.names)}"
                )
        if self.schema is not None and table.schema.equals(self.schema):
            return table
        columns = [simple(column) for column in table.columns]
        table = pa.RecordBatch.from_arrays(columns, names=table.schema.names)
        if self.schema is None:
            self.schema = table.schema
        elif not table.schema.equals(self.schema):
            try:
                self.schema = unified_schema(
                    self.schema, table.schema, missing_fields=not self.of_rows
                )
            except UnlikeTypesError as error:
                raise self._refused(error) from error
        return self.conform(table)

    def conform(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Records that came before, with the columns known by now.

        Raises UserCodeError for a value that would not be the same in the type of its column.
        """
        assert self.schema is not None
        try:
            return widened_table(table, self.schema)
        except UnlikeTypesError as error:
            raise self._refused(error) from error

    def _refused(self, error: UnlikeTypesError) -> UserCodeError:
        return UserCodeError(f"operator {self._label}: the {self._side}: {error}")

    def hashes(self, table: pa.RecordBatch) -> U64:
        """Those of the keys by which records are dealt; of equal keys of both sides they are equal."""
        return hash_columns([table.column(name) for name in self._keys])

    def key_arrays(self, table: pa.RecordBatch) -> list[pa.Array]:
        """The keys, in the types in which those of both sides are compared."""
        arrays = []
        for name in self._keys:
            array = table.column(name)
            kind = key_kind(array.type)
            arrays.append(array if kind is None else array.cast(kind[1]))
        return arrays


def simple_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, simple_type(each.type)) for each in schema])


def equal_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Whether the keys in each row are equal; none of them is null. None if all are."""
    same = None
    for one, other in zip(left, right, strict=True):
        matches = _equal(one, other)
        same = matches if same is None else pc.and_(same, matches)
    assert same is not None
    if pc.all(same).as_py():
        return None
    found: npt.NDArray[np.bool_] = same.to_numpy(zero_copy_only=False)
    return found


def _equal(one: pa.Array, other: pa.Array) -> pa.Array:
    if one.type == other.type or not pa.types.is_timestamp(one.type):
        return pc.equal(one, other)
    coarse, fine = sorted((one, other), key=lambda array: _PER_SECOND[array.type.unit])
    factor = _PER_SECOND[fine.type.unit] // _PER_SECOND[coarse.type.unit]
    numbers, finer = (array.view(pa.int64()).to_numpy() for array in (coarse, fine))
    # To multiply instead could leave the range.
    return pa.array((finer % factor == 0) & (finer // factor == numbers))


_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
