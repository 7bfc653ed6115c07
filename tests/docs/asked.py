"""What users of other systems ask first, as they would type it, and the page that must come up first."""

from __future__ import annotations

ASKED = {
    # of Flink
    "what about late data": "questions.html",
    "allowed lateness": "questions.html",
    "RocksDB state backend": "questions.html",
    "restart strategy": "questions.html",
    "where is the web ui": "questions.html",
    "high availability": "questions.html",
    "how do I rescale": "upgrading.html",
    "watermark not advancing": "questions.html",
    "savepoint": "savepoints.html",
    "side output": "operators.html",
    "interval join": "joins.html",
    "ProcessWindowFunction": "from-flink.html",
    "CDC debezium": "questions.html",
    "data skew": "questions.html",
    # of Spark
    "how do I dedupe": "questions.html",
    "foreachBatch": "questions.html",
    "trigger available now": "questions.html",
    "mapGroupsWithState": "questions.html",
    "UDF": "questions.html",
    "how do I join two streams": "tutorial.html",
    "what if my schema changes": "questions.html",
    "out of memory": "questions.html",
    # of Bytewax
    "stateful_map": "questions.html",
    "fold_window": "from-bytewax.html",
    "GIL": "questions.html",
    "how do I write my own sink": "questions.html",
    "poison pill": "questions.html",
    # of everybody
    "where do my logs go": "questions.html",
    "how do I test a job": "testing-a-job.html",
    "how do I stop a job": "questions.html",
    "how do I use kafka": "kafka-to-delta.html",
    "how do I run in production": "questions.html",
    "kubernetes": "on-kubernetes.html",
    "metrics prometheus": "metrics.html",
}
