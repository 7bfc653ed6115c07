"""NexMark's queries 0 to 22 over one stream of events, one function a query, as in nexmark/nexmark.

    query        what all of them have in common
    bids         one bid at a time, without state
    statistics   running statistics, last and highest bids
    windowed     windows of event time and of the clock
    joined       joins of auctions with bids and with sellers

A new query is a function in one of these files, and a line here.
"""

from __future__ import annotations

from benchmarks.nexmark.queries import bids, joined, statistics, windowed
from benchmarks.nexmark.queries.query import Query

_ALL = (
    Query(bids.q0),
    Query(bids.q1),
    Query(bids.q2),
    Query(joined.q3),
    Query(joined.q4, replaced_by=("category",)),
    Query(windowed.q5),
    Query(joined.q6, not_in_flink="its windows take no retractions, which the winning bids give"),
    Query(windowed.q7),
    Query(windowed.q8),
    Query(joined.q9, replaced_by=("id",)),
    Query(bids.q10, folders=("dt", "hm")),
    Query(windowed.q11),
    Query(windowed.q12),
    Query(bids.q13),
    Query(bids.q14),
    Query(statistics.q15, replaced_by=("day",)),
    Query(statistics.q16, replaced_by=("channel", "day")),
    Query(statistics.q17, replaced_by=("auction", "day")),
    Query(statistics.q18, replaced_by=("bidder", "auction")),
    Query(statistics.q19, replaced_by=("auction", "rank")),
    Query(joined.q20),
    Query(bids.q21),
    Query(bids.q22),
)

QUERIES = {query.name: query for query in _ALL}

__all__ = ["QUERIES", "Query"]
