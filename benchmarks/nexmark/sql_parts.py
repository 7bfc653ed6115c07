"""Parts of NexMark's queries that Flink SQL and Spark SQL read alike."""

from __future__ import annotations

_RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
COUNTS = "COUNT(*) AS total_bids, " + ", ".join(
    f"COUNT(*) FILTER (WHERE {where}) AS {rank}_bids" for rank, where in _RANKS.items()
)
DISTINCT_COUNTS = ", ".join(
    f"COUNT(DISTINCT {column}) FILTER (WHERE {where}) AS {rank}_{column}s"
    for column in ("bidder", "auction")
    for rank, where in {"total": "TRUE", **_RANKS}.items()
)
IN_TIME = (
    "auction A JOIN bid B ON A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires"
)
BID_OF_AUCTION = """
    B.auction, B.bidder, B.price, B.`dateTime` AS dateTime_right, B.extra AS extra_right
"""
