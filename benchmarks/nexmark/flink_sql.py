"""The queries of NexMark in Flink SQL, with the meaning that they have in nexmark/nexmark."""

from __future__ import annotations

import pyarrow as pa

from benchmarks.nexmark.queries.bids import SIDE_KEYS
from benchmarks.nexmark.sql_parts import BID_OF_AUCTION, COUNTS, DISTINCT_COUNTS, IN_TIME
from minirt.laboratory.nexmark.schemas import KINDS, SCHEMAS, Kind

_TYPES = {pa.int64(): "BIGINT", pa.string(): "STRING", pa.timestamp("ms"): "TIMESTAMP(3)"}

_TIME = "dateTime"

_DAY = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"


def _windows(kind: str, table: str, size: str) -> str:
    return f"TABLE({kind}(TABLE {table}, DESCRIPTOR(`dateTime`), {size}))"


_HOPPING = _windows("HOP", "bid", "INTERVAL '2' SECOND, INTERVAL '10' SECOND")
_TEN_SECONDS = "INTERVAL '10' SECOND"

QUERIES: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": """
        SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid
    """,
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category, AVG(final) AS `avg`
        FROM (SELECT MAX(B.price) AS final, category FROM {IN_TIME} GROUP BY A.id, category)
        GROUP BY category
    """,
    "q5": f"""
        SELECT C.auction, C.num
        FROM (
            SELECT auction, COUNT(*) AS num, window_start, window_end
            FROM {_HOPPING} GROUP BY auction, window_start, window_end
        ) C JOIN (
            SELECT MAX(num) AS most, window_start, window_end
            FROM (
                SELECT COUNT(*) AS num, window_start, window_end
                FROM {_HOPPING} GROUP BY auction, window_start, window_end
            )
            GROUP BY window_start, window_end
        ) M
        ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.num >= M.most
    """,
    "q7": f"""
        SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra
        FROM bid B JOIN (
            SELECT MAX(price) AS highest, window_end AS `end`
            FROM {_windows("TUMBLE", "bid", _TEN_SECONDS)} GROUP BY window_start, window_end
        ) M
        ON B.price = M.highest AND B.`dateTime` BETWEEN M.`end` - {_TEN_SECONDS} AND M.`end`
    """,
    "q8": f"""
        SELECT P.id, P.name, P.window_start
        FROM (
            SELECT id, name, window_start, window_end
            FROM {_windows("TUMBLE", "person", _TEN_SECONDS)} GROUP BY id, name, window_start, window_end
        ) P JOIN (
            SELECT seller, window_start, window_end
            FROM {_windows("TUMBLE", "auction", _TEN_SECONDS)} GROUP BY seller, window_start, window_end
        ) A
        ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
    """,
    "q9": f"""
        SELECT * FROM (
            SELECT A.*, {BID_OF_AUCTION}, ROW_NUMBER() OVER (
                PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC
            ) AS `rank`
            FROM {IN_TIME}
        ) WHERE `rank` <= 1
    """,
    "q10": f"""
        SELECT auction, bidder, price, `dateTime`, extra, {_DAY} AS dt,
            DATE_FORMAT(`dateTime`, 'HH:mm') AS hm
        FROM bid
    """,
    "q11": f"""
        SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
        FROM TABLE(
            SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), {_TEN_SECONDS})
        )
        GROUP BY bidder, window_start, window_end
    """,
    "q12": f"""
        SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
        FROM TABLE(TUMBLE(TABLE clocked_bid, DESCRIPTOR(clock), {_TEN_SECONDS}))
        GROUP BY bidder, window_start, window_end
    """,
    "q13": f"""
        SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
        FROM clocked_bid B JOIN side_input FOR SYSTEM_TIME AS OF B.clock AS S
        ON MOD(B.auction, {SIDE_KEYS}) = S.`key`
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE
                WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
                WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bidTimeType,
            `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q15": f"SELECT {_DAY} AS `day`, {COUNTS}, {DISTINCT_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`,
            {COUNTS}, {DISTINCT_COUNTS}
        FROM bid GROUP BY channel, {_DAY}
    """,
    "q17": f"""
        SELECT auction, {_DAY} AS `day`, {COUNTS}, MIN(price) AS min_price, MAX(price) AS max_price,
            AVG(price) AS avg_price, SUM(price) AS sum_price
        FROM bid GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS `rank`
            FROM bid
        ) WHERE `rank` <= 1
    """,
    "q19": """
        SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS `rank` FROM bid
        ) WHERE `rank` <= 10
    """,
    "q20": """
        SELECT B.*, A.id, A.itemName, A.description, A.initialBid, A.reserve,
            A.`dateTime` AS dateTime_right, A.expires, A.seller, A.category, A.extra AS extra_right
        FROM bid B JOIN auction A ON B.auction = A.id
        WHERE A.category = 10
    """,
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE LOWER(channel)
                    WHEN 'apple' THEN '0'
                    WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2'
                    WHEN 'baidu' THEN '3'
                    ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
                END AS channel_id
            FROM bid
        )
        WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
            SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
        FROM bid
    """,
}


def script(name: str, folder: str, events: int, block_events: int, parallelism: int) -> str:
    """The statements of a query over the events in a folder, as the job `Nexmark` reads them."""
    options = {
        "folder": folder,
        "events": events,
        "block-events": block_events,
        "splits": parallelism,
    }
    statements = [_events(options), *map(_view, KINDS[:3]), _CLOCKED, _SIDE, QUERIES[name]]
    return "\n---\n".join(statement.strip() for statement in statements)


def _events(options: dict[str, object]) -> str:
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    kinds = ", ".join(f"`{kind}` ROW<{_columns(kind)}>" for kind in KINDS[:3])
    return f"""
        CREATE TABLE events (
            event_type INT, {kinds}, `dateTime` TIMESTAMP(3),
            WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
        ) WITH ('connector' = 'nexmark', {given})
    """


def _columns(kind: Kind) -> str:
    return ", ".join(f"`{field.name}` {_TYPES[field.type]}" for field in SCHEMAS[kind])


def _view(kind: Kind) -> str:
    """Its time is that of the event, which carries the watermark."""
    columns = ", ".join(
        f"`{name}`" if name == _TIME else f"`{kind}`.`{name}` AS `{name}`"
        for name in SCHEMAS[kind].names
    )
    own = f"event_type = {KINDS.index(kind)}"
    return f"CREATE VIEW `{kind}` AS SELECT {columns} FROM events WHERE {own}"


_CLOCKED = "CREATE VIEW clocked_bid AS SELECT *, PROCTIME() AS clock FROM bid"
_SIDE = f"""
    CREATE TABLE side_input (`key` BIGINT, `value` STRING)
    WITH ('connector' = 'nexmark', 'keys' = '{SIDE_KEYS}')
"""
