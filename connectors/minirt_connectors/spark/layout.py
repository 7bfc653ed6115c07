"""How the rows of a DataFrame are dealt to files and splits, and which order that keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from minirt.errors import ConfigurationError
from minirt.units import positive
from minirt_connectors.spark.columns import column, is_orderable, refuse_unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_SPLITS = 8
_DEALT = "dealt"


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of files, and the order of rows in and between them.

    With `order_by` alone, files are ranges of that order, and one split reads one file after the other: all
    rows come in the order. With `partition_by` too, each file is a split of its own, and holds all rows of
    its keys: the order holds within each key. `in_turns` is how earlier versions dealt
    ordered rows: to any file, so that the order held within a file only.
    """

    order_by: tuple[str, ...] = ()
    splits: int = DEFAULT_SPLITS
    partition_by: tuple[str, ...] = ()
    in_turns: bool = False

    @classmethod
    def of(
        cls,
        order_by: str | Sequence[str] | None,
        partition_by: str | Sequence[str] | None,
        splits: int | None,
    ) -> Layout:
        """Raises ConfigurationError for options that have no effect."""
        order, keys = _names(order_by), _names(partition_by)
        if keys and not order:
            raise ConfigurationError("partition_by has no effect without order_by")
        return cls(order, positive("splits", DEFAULT_SPLITS if splits is None else splits), keys)

    @property
    def one_order(self) -> bool:
        """All files are read as one split, one after the other."""
        return bool(self.order_by and self.splits > 1 and not self.partition_by) and (
            not self.in_turns
        )

    def check(self, df: DataFrame) -> None:
        """Raise ConfigurationError for columns that are not there or that have no order."""
        for option, names in (("order_by", self.order_by), ("partition_by", self.partition_by)):
            refuse_unknown(df, names, option)
            for name in names:
                kind = df.schema[name].dataType
                if not is_orderable(kind):
                    raise ConfigurationError(
                        f"{option}: column {name} is {kind.simpleString()}, which Spark cannot compare"
                    )

    def plain(self) -> dict[str, Any]:
        """The form in which it is written down; one file has but one order, however it is dealt."""
        found: dict[str, Any] = {"order_by": list(self.order_by), "splits": self.splits}
        if self.order_by and self.splits > 1 and not self.in_turns:
            found[_DEALT] = list(self.partition_by) or "ranges"
        return found

    def as_written(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Layout | None:
        """The layout of data that was written down as `found`, None if it is not the one wanted.

        Data that an earlier version has dealt in turns stays usable.
        """
        if found == wanted:
            return self
        earlier = {name: value for name, value in wanted.items() if name != _DEALT}
        return replace(self, in_turns=True) if self.one_order and found == earlier else None

    def deal(self, df: DataFrame) -> DataFrame:
        """The rows in one partition for each file, each partition in its order."""
        order = [column(name) for name in self.order_by]
        if self.partition_by:
            dealt = df.repartition(self.splits, *[column(name) for name in self.partition_by])
        elif self.one_order:
            dealt = df.repartitionByRange(self.splits, *order)
        else:
            dealt = df.repartition(self.splits)
        return dealt.sortWithinPartitions(*order) if order else dealt


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
