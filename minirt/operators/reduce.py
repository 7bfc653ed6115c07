"""`reduce`: the value of a key so far, combined with each of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from minirt.data.batch import Batch, Rows
from minirt.data.keys import are_simple, distinct_keys, exact_keys
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, function_name
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling, result_of_each
from minirt.operators.common.filling import StateFilling, ValuesFilling
from minirt.operators.common.functions import check_function
from minirt.operators.common.keyed import KeyedOperator, check_stored_keys
from minirt.operators.common.results import nothing_returned
from minirt.state.handles import ValueState
from minirt.state.kinds_of_state import KindsOfState
from minirt.state.sections import Section

VALUE = "value"
"""What its state is called."""


@dataclass(frozen=True, slots=True)
class ReduceSpec(OperatorSpec):
    """Emits the combined value of the key after every record."""

    kind: ClassVar = "reduce"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    function: Callable[[Any, Any], Any]

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    def check(self, site: Site) -> None:
        check_function(
            self.function, site.label, "the value so far", "the record", returns="the new value"
        )

    def filling(self, site: Site, output: pa.Schema | None) -> StateFilling:
        return ValuesFilling(site.label, site.keys, {VALUE: ValueState})

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
        self._key_of, self._key_columns = ctx.keys[0].on_rows(), ctx.keys[0].columns
        self._function = function
        self._values = self.state.table(VALUE)
        self._kinds = KindsOfState(ctx.label, {VALUE: ValueState.__name__})
        self._trusted = ctx.custody.trusts(function)
        unchanging = ctx.custody.leaves_unchanged(function)
        # With pickles, a value that has a hash may change all the same.
        self._quick = self._trusted and unchanging and not ctx.allow_pickle
        """Whether all keys and values so far were of types that need no care."""

    def open(self) -> None:
        values, custody = self._values, self.ctx.custody
        self._quick = self._quick and are_simple(list(values))
        if custody.settles:
            for key, value in values.items():
                values[key] = custody.settle(value)

    def snapshot(self) -> Mapping[str, Section]:
        return self._kinds.beside(super().snapshot())

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self._kinds.check(sections)
        super().restore(sections, exact=exact)

    def process(self, batch: Batch, input_index: int) -> None:
        rows, results = batch.rows(), list[Any]()
        with Calling(self.ctx.label):
            records = rows.records
            keys = exact_keys(result_of_each(self._key_of, records), batch, self._key_columns)
            simple = are_simple(keys)
            if not simple:
                check_stored_keys(keys, records, self.ctx.label)
                keys = distinct_keys(keys)
            self._quick = self._quick and simple
            self.state.change(keys)
            if self._quick:
                results = self._combine_quickly(keys, records)
            else:
                self._combine(keys, records, results)
        self.ctx.emit(Rows(results, rows.timestamps))

    def _combine_quickly(self, keys: Sequence[Any], records: Sequence[Any]) -> list[Any]:
        """As `_combine`, for keys that are simple.

        State and results may be the same values as long as nobody can change them, which is so for all that
        have a hash. As the function changes nothing either, it is early enough to look at the values once
        all of them are there.
        """
        values, combine, results = self._values, self._function, list[Any]()
        custody = self.ctx.custody
        known = {key: values[key] for key in keys if key in values} if custody.settles else {}
        for key, record in zip(keys, records, strict=True):
            try:  # A key that is known, as most are, costs one look-up this way, not two.
                before = values[key]
            except KeyError:
                value = record
            else:
                value = combine(before, record)
                if value is None and record is not None:
                    raise nothing_returned("reduce")
            values[key] = value
            results.append(value)
        try:
            hash(tuple(results))  # It asks each for its hash.
        except TypeError:
            self._quick = False
        if custody.settles and custody.settle_all(results) is not results:
            # Later values were made of sets that had another order: so once more, one by one.
            for key in keys:
                values.pop(key, None)
            values.update(known)
            self._quick, results = False, []
            self._combine(keys, records, results)
            return results
        return results if self._quick else custody.lend_all(results)

    def _combine(self, keys: Sequence[Any], records: Sequence[Any], results: list[Any]) -> None:
        """The value that the function returns goes into the state; a copy goes out.

        A value of which `take` makes no copy needs none the second time either.
        """
        values, combine, trusted = self._values, self._function, self._trusted
        take, append, custody = self.ctx.custody.take, results.append, self.ctx.custody
        settles = custody.settles
        for key, record in zip(keys, records, strict=True):
            value = combine(values[key], record) if key in values else record
            if value is None and record is not None:
                raise nothing_returned("reduce")
            kept = value if trusted else take(value)
            if settles:
                kept = custody.settle(kept)
            values[key] = kept
            append(kept if kept is value and not trusted else take(kept))
