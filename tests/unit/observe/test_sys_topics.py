"""$SYS: Mosquitto's names and its arithmetic."""

from __future__ import annotations

import math

from perdure.observe import Metrics, SysTopics
from perdure.observe.sys_topic_table import topic_names

SECOND = 1_000_000


def test_names_and_values() -> None:
    metrics = Metrics()
    metrics.sessions_connected = 2
    metrics.sessions_offline = 5
    metrics.publishes_received = 4
    metrics.messages_received_1 = 4
    metrics.retained_messages = 9
    metrics.storage_messages = 11
    topics = SysTopics("1.2.3", started_us=100 * SECOND)
    found = dict(topics.values(metrics, now_us=107 * SECOND + 999_999))
    assert found["$SYS/broker/version"] == "perdure version 1.2.3"
    assert found["$SYS/broker/uptime"] == "7 seconds"
    assert found["$SYS/broker/clients/connected"] == "2"
    assert found["$SYS/broker/clients/disconnected"] == "5"
    assert found["$SYS/broker/clients/total"] == "7"
    assert found["$SYS/broker/messages/received"] == "4"
    assert found["$SYS/broker/publish/messages/received"] == "4"
    assert found["$SYS/broker/retained messages/count"] == "9"
    assert found["$SYS/broker/store/messages/count"] == "11"
    assert list(found) == topic_names(is_clustered=False)
    metrics.cluster_members = 3
    metrics.cluster_stalled_seconds = 4
    found = dict(topics.values(metrics, now_us=108 * SECOND))
    assert set(found) == set(topic_names(is_clustered=True))
    assert found["$SYS/broker/cluster/stalled"] == "4 seconds"


def test_maximum_stays() -> None:
    metrics = Metrics()
    topics = SysTopics("1", started_us=0)
    metrics.sessions_connected = 8
    topics.values(metrics, now_us=SECOND)
    metrics.sessions_connected = 1
    found = dict(topics.values(metrics, now_us=2 * SECOND))
    assert found["$SYS/broker/clients/maximum"] == "8"


def test_load_is_an_exponential_average_per_minute() -> None:
    metrics = Metrics()
    topics = SysTopics("1", started_us=0)
    metrics.messages_received_0 = 100
    first = dict(topics.values(metrics, now_us=10 * SECOND))
    # 100 in 10 s is 600 a minute, of which the average takes 1 - e^(-10/60).
    share = 600 * (1 - math.exp(-10 / 60))
    assert first["$SYS/broker/load/publish/received/1min"] == f"{share:.2f}"
    assert (
        first["$SYS/broker/load/publish/received/15min"] == f"{600 * (1 - math.exp(-10 / 900)):.2f}"
    )
    second = dict(topics.values(metrics, now_us=70 * SECOND))
    assert second["$SYS/broker/load/publish/received/1min"] == f"{share * math.exp(-1):.2f}"


def test_steady_rate_converges_whatever_the_interval() -> None:
    for interval_s in (1, 7, 60):
        metrics = Metrics()
        topics = SysTopics("1", started_us=0)
        for step in range(1, 1200):
            metrics.bytes_received = step * interval_s * 5
            found = dict(topics.values(metrics, now_us=step * interval_s * SECOND))
        assert found["$SYS/broker/load/bytes/received/1min"] == "300.00"


def test_a_second_call_at_the_same_time_changes_nothing() -> None:
    metrics = Metrics()
    topics = SysTopics("1", started_us=0)
    metrics.bytes_sent = 50
    first = topics.values(metrics, now_us=SECOND)
    assert topics.values(metrics, now_us=SECOND) == first


def test_changes_are_what_differs() -> None:
    metrics = Metrics()
    topics = SysTopics("1", started_us=0)
    everything = topics.changes(metrics, now_us=SECOND)
    assert [topic for topic, _ in everything] == topic_names(is_clustered=False)
    metrics.subscriptions = 1
    assert topics.changes(metrics, now_us=SECOND) == [("$SYS/broker/subscriptions/count", "1")]
