"""What a topic takes of no record is refused when the record is written, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")

from minirt.data.batch import Columns, Rows
from minirt.errors import ConfigurationError, SinkDataError
from minirt_connectors.kafka import KafkaSink
from minirt_connectors.kafka import ledger as ledger_module
from minirt_connectors.kafka import sink as sink_module
from minirt_connectors.kafka.formats import format_of
from minirt_connectors.kafka.outgoing import Shape, TopicRules

NOW_MS = 1_800_000_000_000
LIMIT = 3_600_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minirt_connectors.kafka.outgoing._now_ms", lambda: NOW_MS)


def taken(rules: TopicRules, time_ms: int, key: bytes | None) -> bool:
    """Whether a broker with these rules takes the record."""
    ahead = rules.ahead_ms is None or time_ms - NOW_MS <= rules.ahead_ms
    behind = rules.behind_ms is None or NOW_MS - time_ms <= rules.behind_ms
    return ahead and behind and not (rules.needs_keys and key is None)


RULES = st.builds(
    TopicRules,
    needs_keys=st.booleans(),
    ahead_ms=st.none() | st.just(LIMIT),
    behind_ms=st.none() | st.just(LIMIT),
)
RECORDS = st.fixed_dictionaries(
    {
        "at": st.sampled_from([-LIMIT - 1, -LIMIT, 0, LIMIT, LIMIT + 1]).map(NOW_MS.__add__),
        "key": st.none() | st.binary(max_size=2),
    }
)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@given(rules=RULES, records=st.lists(RECORDS, min_size=1, max_size=5))
def test_exactly_the_records_that_brokers_refuse_are_refused_by_name(
    columns: bool, rules: TopicRules, records: list[dict[str, Any]]
) -> None:
    numbered = [{"n": n, **record} for n, record in enumerate(records)]
    schema = pa.schema([("n", pa.int64()), ("at", pa.int64()), ("key", pa.binary())])
    batch = Columns(pa.RecordBatch.from_pylist(numbered, schema)) if columns else Rows(numbered)
    values = [{"n": record["n"]} for record in numbered]
    text = format_of("json").encode(Rows(values), "out")

    class Encoded:
        def encode(self, batch: Any, operator: str) -> Any:
            return text

    shape = Shape(Encoded(), key="key", timestamp="at", rules=rules)  # type: ignore[arg-type]
    wrong = [r["n"] for r in numbered if not taken(rules, r["at"], r["key"])]
    if not wrong:
        assert len(shape.outgoing(batch, "the sink out")) == len(records)
        return
    with pytest.raises(SinkDataError, match="the sink out") as refused:
        shape.outgoing(batch, "the sink out")
    assert any(f"'n': {n}," in str(refused.value) for n in wrong)
    assert any(
        name in str(refused.value)
        for name in ("cleanup.policy", "timestamp.after.max.ms", "timestamp.before.max.ms")
    )


NEVER = str(2**63 - 1)


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({}, TopicRules(2)),
        ({"cleanup.policy": "compact,delete"}, TopicRules(2, needs_keys=True)),
        ({"cleanup.policy": "delete", "max.message.bytes": "10"}, TopicRules(2, 10)),
        ({"message.timestamp.after.max.ms": "5"}, TopicRules(2, ahead_ms=5)),
        ({"message.timestamp.before.max.ms": "5"}, TopicRules(2, behind_ms=5)),
        (
            {
                "message.timestamp.after.max.ms": NEVER,
                "message.timestamp.before.max.ms": "7",
                "message.timestamp.difference.max.ms": "5",
            },
            TopicRules(2, ahead_ms=5, behind_ms=7),
        ),
        (
            {
                "message.timestamp.after.max.ms": "5",
                "message.timestamp.type": "LogAppendTime",
            },
            TopicRules(2, own_times=True),
        ),
        ({"message.timestamp.type": "CreateTime"}, TopicRules(2)),
    ],
)
def test_rules_are_read_from_the_settings_of_any_version_of_kafka(
    config: Mapping[str, str], rules: TopicRules
) -> None:
    assert TopicRules.of(2, config) == rules


class Brokers:
    """What a sink asks of brokers when it is validated."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, topic: Mapping[str, str], longest: str | None
    ) -> None:
        broker = {} if longest is None else {"transaction.max.timeout.ms": longest}
        monkeypatch.setattr(sink_module.Cluster, "topic", lambda self, name: 1)
        monkeypatch.setattr(sink_module.Cluster, "admin", lambda self: self)
        monkeypatch.setattr(
            sink_module.Cluster, "list_topics", lambda self, **_: self, raising=False
        )
        monkeypatch.setattr(sink_module.Cluster, "brokers", [1], raising=False)
        monkeypatch.setattr(sink_module, "topic_config", lambda admin, name: topic)
        monkeypatch.setattr(sink_module, "settings_of", lambda admin, kind, name: broker)


def test_a_compacted_topic_without_keys_is_refused_when_the_job_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Brokers(monkeypatch, {"cleanup.policy": "compact"}, None)
    with pytest.raises(ConfigurationError, match=r"compacted.*give key="):
        KafkaSink("x:1", "t").validate()
    KafkaSink("x:1", "t", key="k").validate()


def test_a_topic_that_replaces_timestamps_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Brokers(monkeypatch, {"message.timestamp.type": "LogAppendTime"}, None)
    KafkaSink("x:1", "t").validate()
    assert not caplog.records
    KafkaSink("x:1", "t", timestamp="at").validate()
    assert "LogAppendTime" in caplog.text
    assert "timestamp=... has no effect" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "longest", "used"),
    [
        (None, None, 300_000),
        (None, "900000", 300_000),
        (None, "60000", 60_000),
        (30_000, "60000", 30_000),
        ("800000", "900000", 800_000),
        (800_000, None, 800_000),
    ],
)
def test_a_commit_takes_no_longer_than_brokers_and_users_allow(
    monkeypatch: pytest.MonkeyPatch, wanted: object, longest: str | None, used: int
) -> None:
    Brokers(monkeypatch, {}, longest)
    options = {} if wanted is None else {"transaction.timeout.ms": wanted}
    sink = KafkaSink("x:1", "t", options=options)
    sink.validate()
    assert sink._commit_timeout_ms == used


def test_a_longer_timeout_than_brokers_allow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, {}, "60000")
    with pytest.raises(ConfigurationError, match="at most 60 s"):
        KafkaSink("x:1", "t", options={"transaction.timeout.ms": 90_000}).validate()
    for wrong in ("soon", 5, -1, 1.5):
        with pytest.raises(ConfigurationError, match=r"transaction\.timeout\.ms"):
            KafkaSink("x:1", "t", options={"transaction.timeout.ms": wrong})
    with pytest.raises(ConfigurationError, match="leave the option out"):
        KafkaSink("x:1", "t", delivery="direct", options={"transaction.timeout.ms": 90_000})


class _Topics:
    """Brokers as a ledger asks them: topics with so many replicas, and their settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **replicas: int) -> None:
        self.replicas, self.made = replicas, list[Any]()
        in_sync = {"min.insync.replicas": "2", "cleanup.policy": "compact"}
        monkeypatch.setattr(ledger_module, "topic_config", lambda admin, name: in_sync)

    def admin(self) -> Any:
        return self

    def create_topics(self, new: list[Any]) -> dict[str, Any]:
        [topic] = new
        self.made.append(topic)
        self.replicas[topic.topic] = topic.replication_factor
        return {topic.topic: SimpleNamespace(result=lambda wait_s: None)}

    def list_topics(self, name: str, timeout: float) -> Any:
        missing = SimpleNamespace(name=lambda: "UNKNOWN_TOPIC_OR_PART")
        count = self.replicas.get(name)
        one = SimpleNamespace(leader=1, replicas=list(range(count or 0)))
        found = SimpleNamespace(
            error=missing if count is None else None, partitions={} if count is None else {0: one}
        )
        return SimpleNamespace(topics={name: found})


def test_a_ledger_is_as_safe_as_the_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics = _Topics(monkeypatch, records=3)
    ledger_module._make_sure(topics, topics, "ledger", "records")  # type: ignore[arg-type]
    [made] = topics.made
    assert (made.topic, made.num_partitions, made.replication_factor) == ("ledger", 1, 3)
    assert made.config == {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    assert not caplog.records
    weak = _Topics(monkeypatch, records=3, ledger=1)
    ledger_module._make_sure(weak, weak, "ledger", "records")  # type: ignore[arg-type]
    assert weak.made == []
    assert "the ledger 'ledger' has 1 replicas" in caplog.text
