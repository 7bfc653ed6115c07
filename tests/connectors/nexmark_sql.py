"""The queries of NexMark in Spark SQL, over the tables person, auction and bid."""

from __future__ import annotations

from benchmarks.nexmark.sql_parts import BID_OF_AUCTION, COUNTS, DISTINCT_COUNTS, IN_TIME

_EUROS = "CAST(price AS DECIMAL(19, 0)) * 0.908"
_MINUTE = "date_format(dateTime, 'HH:mm')"

SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": f"SELECT auction, bidder, {_EUROS} AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category, avg(final) AS avg
        FROM (SELECT max(B.price) AS final, category FROM {IN_TIME} GROUP BY A.id, category)
        GROUP BY category
    """,
    "q5": """
        SELECT auction, window.start AS window_start, window.end AS window_end, num
        FROM (
            SELECT *, max(num) OVER (PARTITION BY window) AS most
            FROM (
                SELECT auction, window, count(*) AS num FROM bid
                GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
            )
        )
        WHERE num = most
    """,
    "q6": f"""
        SELECT seller, id,
            avg(final) OVER (
                PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
            ) AS avg
        FROM (
            SELECT seller, id, expires, max(B.price) AS final FROM {IN_TIME}
            GROUP BY seller, id, expires
        )
    """,
    "q7": """
        SELECT auction, bidder, price, dateTime, extra
        FROM bid JOIN (
            SELECT max(price) AS highest, window.end AS end FROM bid
            GROUP BY window(dateTime, '10 seconds')
        ) ON price = highest AND dateTime BETWEEN end - INTERVAL 10 SECONDS AND end
    """,
    "q8": """
        SELECT DISTINCT P.id, P.name, P.starttime
        FROM (SELECT *, window(dateTime, '10 seconds').start AS starttime FROM person) P
        JOIN (SELECT *, window(dateTime, '10 seconds').start AS starttime FROM auction) A
        ON P.id = A.seller AND P.starttime = A.starttime
    """,
    "q9": f"""
        SELECT * FROM (
            SELECT A.*, {BID_OF_AUCTION}, row_number() OVER (
                PARTITION BY A.id ORDER BY B.price DESC, B.dateTime
            ) AS rank
            FROM {IN_TIME}
        ) WHERE rank = 1
    """,
    "q10": f"""
        SELECT auction, bidder, price, dateTime, extra,
            date_format(dateTime, 'yyyy-MM-dd') AS dt, {_MINUTE} AS hm
        FROM bid
    """,
    "q11": """
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS window_start,
            max(dateTime) + INTERVAL 10 SECONDS AS window_end
        FROM (
            SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
            FROM (
                SELECT bidder, dateTime, CASE
                    WHEN dateTime <= lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
                        + INTERVAL 10 SECONDS
                    THEN 0 ELSE 1
                END AS begins
                FROM bid
            )
        )
        GROUP BY bidder, session
    """,
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": """
        SELECT auction, bidder, price, dateTime, value
        FROM bid JOIN (SELECT id AS key, CAST(id AS STRING) AS value FROM range(10000))
        ON auction % 10000 = key
    """,
    "q14": f"""
        SELECT auction, bidder, {_EUROS} AS price,
            CASE
                WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c')) AS c_counts
        FROM bid
        WHERE {_EUROS} > 1000000 AND {_EUROS} < 50000000
    """,
    "q15": f"""
        SELECT to_date(dateTime) AS day, {COUNTS}, {DISTINCT_COUNTS}
        FROM bid GROUP BY to_date(dateTime)
    """,
    "q16": f"""
        SELECT channel, to_date(dateTime) AS day, max({_MINUTE}) AS minute,
            {COUNTS}, {DISTINCT_COUNTS}
        FROM bid GROUP BY channel, to_date(dateTime)
    """,
    "q17": f"""
        SELECT auction, to_date(dateTime) AS day, {COUNTS},
            min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid
        GROUP BY auction, to_date(dateTime)
    """,
    "q18": """
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank
            FROM bid
        ) WHERE rank = 1
    """,
    "q19": """
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank
            FROM bid
        ) WHERE rank <= 10
    """,
    "q20": """
        SELECT B.*, A.id, A.itemName, A.description, A.initialBid, A.reserve,
            A.dateTime AS dateTime_right, A.expires, A.seller, A.category, A.extra AS extra_right
        FROM bid B JOIN auction A ON B.auction = A.id
        WHERE A.category = 10
    """,
    "q21": r"""
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE lower(channel)
                    WHEN 'apple' THEN '0'
                    WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2'
                    WHEN 'baidu' THEN '3'
                    ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
                END AS channel_id
            FROM bid
        )
        WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel,
            split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2, split(url, '/')[5] AS dir3
        FROM bid
    """,
}
