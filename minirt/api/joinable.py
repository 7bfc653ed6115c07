"""The methods of a stream that join it with another by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from minirt.api.dealing import check_not_keyed
from minirt.api.draft import Port
from minirt.api.joins import JoinKeys, as_of_bounds, join_bounds, join_columns, join_keys
from minirt.api.keywords import OperatorOptions
from minirt.operators.common.join_side import How
from minirt.operators.join import JoinSpec
from minirt.operators.join_as_of import AsOfJoinSpec
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.units import Duration
from minirt.windows import Tumbling

if TYPE_CHECKING:
    from minirt.api.keyed_stream import KeyedStream
    from minirt.api.stream import Row, Stream


class Joinable:
    """What can be joined: a Stream, which has all the rest."""

    __slots__ = ()

    if TYPE_CHECKING:
        _schema: pa.Schema | None
        _ports: tuple[Port, ...]

        @property
        def _label(self) -> str: ...

        def _check_same_environment(self, other: Stream[Any], method: str) -> None: ...

        def key_by(self, *key: str) -> KeyedStream[Any, Any]: ...

    def join(
        self,
        right: Stream[Any],
        *,
        on: JoinKeys,
        within: tuple[Duration, Duration] | None = None,
        window: Tumbling | None = None,
        ttl: Duration | None = None,
        how: How = "inner",
        suffix: str = "_right",
        columns: tuple[Sequence[str], Sequence[str]] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]:
        """Columns of this stream and of `right`, for each pair of records of one key near in event time.

        `on` names the key columns. `within=("-5min", "10min")`: the record of the right is at most 5
        minutes older and 10 minutes newer than that of the left. `window=Tumbling(...)`: both are in one
        window. `ttl="1d"`: whatever their event times, a record is kept for a day, by the clock. `how`:
        "inner" gives pairs; "left", "right" and "full" also records that have no partner, once none can
        come; "semi" the records of the left that have a partner, "anti" those that have none. The side
        output "late" has what came behind the watermark, with `ttl` nothing. `columns` names the columns
        of both sides where they are unknown, as of dicts: results without a partner have all of them.
        """
        from minirt.api.connected import ConnectedStreams

        label = f"join on {self._label}"
        self._check_same_environment(right, "join")
        check_not_keyed((*self._ports, *right._ports), label, "on=... says the key of both sides")
        lefts, rights = join_keys(on, label)
        known = join_columns(columns, (self._schema, right._schema), label)
        kind = JoinSpec if ttl is None else TtlJoinSpec
        spec = kind(join_bounds(within, window, ttl, label), how, suffix, known)
        return ConnectedStreams(self.key_by(*lefts), right.key_by(*rights))._then(spec, options)

    def join_as_of(
        self,
        right: Stream[Any],
        *,
        on: JoinKeys,
        tolerance: Duration | None = None,
        allowed_lateness: Duration = 0,
        how: Literal["inner", "left"] = "inner",
        suffix: str = "_right",
        columns: tuple[Sequence[str], Sequence[str]] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]:
        """Each record with the columns of `right` as they were for its key at its event time.

        `right` is a table that changes: each of its records is a version of its key, which holds from its
        event time until that of the next one. With a `tolerance`, no longer than that. `how="left"` also
        gives records without a version. A result comes when the watermark has reached it, with the event
        time of the left. The side output "late" has the records of the left that came behind the watermark,
        by more than `allowed_lateness`. Versions are kept for so much longer; such a record is answered at
        once.
        """
        from minirt.api.connected import ConnectedStreams

        label = f"join_as_of on {self._label}"
        self._check_same_environment(right, "join_as_of")
        check_not_keyed((*self._ports, *right._ports), label, "on=... says the key of both sides")
        lefts, rights = join_keys(on, label)
        known = join_columns(columns, (self._schema, right._schema), label)
        spec = AsOfJoinSpec(as_of_bounds(tolerance, allowed_lateness, label), how, suffix, known)
        return ConnectedStreams(self.key_by(*lefts), right.key_by(*rights))._then(spec, options)
