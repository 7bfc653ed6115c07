"""What a partitioning must keep to: it loses no record, and deals again as it has promised."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from minirt import by_value
from minirt.data.batch import Columns, Rows
from minirt.graph.partitioning import Partitioning, Wiring, check_wiring
from minirt.partitionings.common.dealing import Dealer, DealingSite
from minirt.protocol.topology import InFlight, Order

Dealt = list[list[Any]]
"""What each receiver of one sender gets."""


@dataclass
class _Buffer:
    records: list[Any] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)


class PartitioningContract:
    """Inherit it, and give it a `partitioning` and `records`: dicts of which columns can be made.

    Each record must be unlike all others.
    """

    widths: ClassVar[Sequence[tuple[int, int]]] = ((1, 1), (2, 2), (1, 3), (2, 5), (3, 2), (4, 1))
    """Parallelism of senders and receivers."""

    @pytest.fixture
    def partitioning(self) -> Partitioning:
        raise NotImplementedError("give a partitioning as a fixture")

    @pytest.fixture
    def records(self) -> list[dict[str, Any]]:
        raise NotImplementedError("give records as a fixture")

    def test_it_says_all(self, partitioning: Partitioning) -> None:
        partitioning.check_facts()
        assert partitioning.described.startswith(partitioning.name)

    def test_it_does_not_contradict_itself(self, partitioning: Partitioning) -> None:
        for senders, receivers in self._edges(partitioning):
            check_wiring(partitioning, senders, receivers, "contract")

    def test_every_record_goes_to_one_receiver_in_order(
        self, partitioning: Partitioning, records: list[dict[str, Any]]
    ) -> None:
        for senders, receivers in self._edges(partitioning):
            for sender in range(senders):
                count = len(partitioning.receivers_of(sender, senders, receivers))
                for deal in (_in_rows, _in_columns):
                    dealt = deal(partitioning, records, count)
                    assert _counted(dealt) == Counter(map(repr, records))
                    places = [[records.index(record) for record in part] for part in dealt]
                    assert all(part == sorted(part) for part in places), "order within a receiver"

    def test_times_go_with_their_records(
        self, partitioning: Partitioning, records: list[dict[str, Any]]
    ) -> None:
        buffers = [_Buffer() for _ in range(_groups(partitioning, 3))]
        partitioning.dealer(_site(buffers)).rows(Rows([*records], [*range(len(records))]))
        for buffer in buffers:
            assert buffer.records == [records[time] for time in buffer.timestamps]

    def test_captured_records_are_dealt_as_they_were(
        self, partitioning: Partitioning, records: list[dict[str, Any]]
    ) -> None:
        """By another process, in other batches, in the other form, among as many receivers."""
        if partitioning.in_flight is not InFlight.DEALT_AGAIN:
            pytest.skip("its in-flight records are not dealt again")
        for count in (1, 2, 3, 5):
            wanted = _in_rows(partitioning, records, count)
            again = pickle.loads(by_value.dumps(partitioning))
            assert _in_columns(again, records, count) == wanted
            turned = _in_rows(again, records[::-1], count, batch=2)
            assert [part[::-1] for part in turned] == wanted

    def test_records_of_a_key_go_to_one_receiver(
        self, partitioning: Partitioning, records: list[dict[str, Any]]
    ) -> None:
        if partitioning.key is None or partitioning.order(2, 3) is not Order.BY_KEY:
            pytest.skip("it does not promise order by key")
        key_of, found = partitioning.key.on_rows(), dict[str, set[int]]()
        for place, part in enumerate(_in_rows(partitioning, records, 3)):
            for record in part:
                found.setdefault(repr(key_of(record)), set()).add(place)
        assert all(len(places) == 1 for places in found.values())

    def test_it_can_be_told_from_others(self, partitioning: Partitioning) -> None:
        """What was in flight is dealt again where the fingerprint has changed."""
        from minirt.graph.fingerprint import fingerprint

        again = pickle.loads(by_value.dumps(partitioning))
        assert fingerprint(partitioning.identity(128)) == fingerprint(again.identity(128))

    def _edges(self, partitioning: Partitioning) -> Iterator[tuple[int, int]]:
        equal = partitioning.wiring is Wiring.ONE_TO_ONE
        return ((s, r) for s, r in self.widths if s == r or not equal)


def _site(buffers: Sequence[_Buffer]) -> DealingSite:
    return DealingSite(buffers, 128, "contract", 1 << 10)


def _groups(partitioning: Partitioning, receivers: int) -> int:
    """How many buffers a sender has: one for all that get the same."""
    return 1 if partitioning.in_flight is InFlight.ONE_COPY else receivers


def _in_rows(
    partitioning: Partitioning, records: Sequence[Any], receivers: int, batch: int = 7
) -> Dealt:
    buffers = [_Buffer() for _ in range(_groups(partitioning, receivers))]
    dealer: Dealer = partitioning.dealer(_site(buffers))
    for start in range(0, len(records), batch):
        dealer.rows(Rows([*records[start : start + batch]], None))
    return [buffer.records for buffer in buffers]


def _in_columns(partitioning: Partitioning, records: Sequence[Any], receivers: int) -> Dealt:
    buffers = [_Buffer() for _ in range(_groups(partitioning, receivers))]
    dealer: Dealer = partitioning.dealer(_site(buffers))
    dealt: Dealt = [[] for _ in buffers]
    for start in range(0, len(records), 7):
        table = pa.RecordBatch.from_pylist([*records[start : start + 7]])
        dealer.check_columns(table)
        for place, part in dealer.columns(Columns(table)):
            dealt[place] += part.table.to_pylist()
    return dealt


def _counted(dealt: Dealt) -> Counter[str]:
    return Counter(repr(record) for part in dealt for record in part)
