"""`reduce`: the value of a key so far, combined with each of its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.data.batch import Batch, Rows
from minirt.data.keys import are_simple, distinct_keys
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, function_name
from minirt.operators.common.base import Operator, OperatorContext, user_error
from minirt.operators.common.functions import check_function
from minirt.operators.common.keyed import KeyedOperator, check_stored_keys

_NOTHING: frozenset[Any] = frozenset()
_UNCHANGING = frozenset({int, float, str, bytes, bool, type(None)})
"""Types all of whose values have a hash, and never change."""


@dataclass(frozen=True, slots=True)
class ReduceSpec(OperatorSpec):
    """Emits the combined value of the key after every record."""

    kind: ClassVar = "reduce"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.ROWS

    function: Callable[[Any, Any], Any]

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    def check(self, site: Site) -> None:
        check_function(self.function, site.label, "the value so far", "the record")

    def build(self, ctx: OperatorContext) -> Operator:
        return ReduceOperator(ctx, self.function)


class ReduceOperator(KeyedOperator):
    """Emits the combined value of a key after each of its records."""

    def __init__(
        self,
        ctx: OperatorContext,
        function: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(ctx)
        self._key_of = ctx.keys[0].on_rows()
        self._function = function
        self._values = self.state.table("value")
        self._trusted = ctx.custody.trusts(function)
        # With pickles, a value that has a hash may change all the same.
        self._quick = self._trusted and not ctx.allow_pickle
        """Whether all keys and values so far were of types that need no care."""

    def open(self) -> None:
        self._quick = self._quick and are_simple(list(self._values))

    def process(self, batch: Batch, input_index: int) -> None:
        rows, key_of = batch.rows(), self._key_of
        results: list[Any] = []
        try:
            records = rows.records
            try:
                keys = [*map(key_of, records)]
            except Exception:  # Once more, in a way that names the record.
                keys = [key_of(record) for record in records]
            check_stored_keys(keys, records, self.ctx.label)
            if self._quick:
                self.state.change(keys)
                done = self._combine_quickly(keys, records, results)
                keys, records = keys[done:], records[done:]
            if keys:
                keys = distinct_keys(keys)
                self.state.change(keys)
                self._combine(keys, records, results)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error
        self.ctx.emit(Rows(results, rows.timestamps))

    def _combine_quickly(
        self, keys: Sequence[Any], records: Sequence[Any], results: list[Any]
    ) -> int:
        """As `_combine`, until a key or a value comes that needs care; returns how many records it
        combined.

        Only a new key can be of a new type. State and results may be the same values, as nobody can change
        them. A value that has a hash never changes. Those of most types need not be asked, and values are
        mostly of the type of the one before; others are looked for in a set, which fails without a hash.
        """
        values, combine, append, nothing = self._values, self._function, results.append, _NOTHING
        unchanging = None
        for key, record in zip(keys, records, strict=True):
            if key in values:
                value = combine(values[key], record)
            elif are_simple([key]):
                value = record
            else:
                self._quick = False
                break
            values[key] = value
            if value.__class__ is not unchanging:
                try:
                    value in nothing  # noqa: B015 - the look-up is for its error
                except TypeError:
                    self._quick = False
                    append(self.ctx.custody.lend(value))
                    break
                if value.__class__ in _UNCHANGING:
                    unchanging = value.__class__
            append(value)
        return len(results)

    def _combine(self, keys: Sequence[Any], records: Sequence[Any], results: list[Any]) -> None:
        """The value that the function returns goes into the state; a copy goes out."""
        values, combine, trusted = self._values, self._function, self._trusted
        take, append = self.ctx.custody.take, results.append
        for key, record in zip(keys, records, strict=True):
            value = combine(values[key], record) if key in values else record
            values[key] = value = value if trusted else take(value)
            append(take(value))
