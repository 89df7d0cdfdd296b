"""The kernel of ``pipeline route``: who gets a topic, and messages that stay what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.forwarders.route.targets import APPLICATION, QUEUE, Matcher, Owed, Route, check_routes
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.topic.matching import matches

pytest.importorskip("pyarrow")
import pyarrow as pa

from perdure.forwarders.route.job import Written, together
from perdure.forwarders.route.rows import (
    BATCH_BYTES,
    COLUMNS,
    OWED,
    match_batches,
    messages_of,
)
from perdure.pipeline.schema import arrow_schema

LEVEL = st.sampled_from(["", "a", "b", "$SYS", "ä"])
TOPICS = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)  # no topic is empty


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVEL, st.just("+")), min_size=0, max_size=4))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return "/".join(levels)


ROUTES = st.lists(
    st.builds(
        Route,
        st.sampled_from([APPLICATION, QUEUE]),
        st.sampled_from(["one", "two", "three:four"]),
        topic_filters().filter(bool),
        st.sampled_from([1, 2]),
    ),
    max_size=12,
)


@given(ROUTES, st.lists(TOPICS, min_size=1, max_size=8))
def test_a_topic_has_the_targets_that_trying_every_filter_finds(
    routes: list[Route], topics: list[str]
) -> None:
    matcher = Matcher(routes)
    for topic in topics:
        wanted: dict[str, int] = {}
        for each in routes:
            if matches(each.topic_filter, topic):
                key = f"{each.kind}:{each.target}"
                wanted[key] = max(wanted.get(key, 0), each.qos)
        assert matcher.match(topic) == tuple(Owed(key, wanted[key]) for key in sorted(wanted))


def test_messages_come_out_as_the_broker_has_them() -> None:
    properties = Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\x00",
        user_properties=(("k", "v"), ("k", "w")),
    )
    messages = [
        Message("t/1", b"x", 1, True, "p", forward_properties(properties), 2 * 10**15, 10**15, 7),
        Message("t/2", b"", 2, False, "", b"", 0, 10**15 + 1, 9),
        Message("t/1", b"not recorded for them", 0, False, "p", b"", 0, 10**15 + 1, 10),
    ]
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "topic": each.topic,
                "payload": each.payload,
                "client_id": each.publisher,
                "offset": each.offset,
                "published_at": each.published_at_us,
                "qos": each.qos,
                "retain": each.retain,
                "expires_at": each.expires_at_us or None,
                **(
                    {
                        "payload_format": 1,
                        "content_type": "text/plain",
                        "response_topic": "r",
                        "correlation_data": b"\x00",
                        "user_properties": [
                            {"name": "k", "value": "v"},
                            {"name": "k", "value": "w"},
                        ],
                    }
                    if each.properties
                    else {}
                ),
            }
            for each in messages
        ],
        schema=arrow_schema(COLUMNS),
    )
    routes = [Route(APPLICATION, "app-a", "t/#"), Route(QUEUE, "device", "t/1", 1)]
    [owed] = match_batches(routes, [batch])
    assert owed.schema == OWED
    assert list(messages_of(owed)) == [
        ("a:app-a", 2, messages[0]),
        ("q:device", 1, messages[0]),
        ("a:app-a", 2, messages[1]),
    ]


def test_a_message_for_many_is_copied_a_few_at_a_time() -> None:
    """All at once it was as many times in memory as it had targets."""
    size = 1 << 20
    row = dict.fromkeys(COLUMNS) | {"topic": "t", "payload": b"x" * size, "client_id": "c"}
    row |= {"offset": 1, "qos": 1, "retain": False, "published_at": 1}
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(COLUMNS))
    routes = [Route(QUEUE, f"d{number:03}", "#") for number in range(100)]
    found = []
    for owed in match_batches(routes, [batch]):
        assert owed.num_rows * size <= BATCH_BYTES
        found += owed.column("target").to_pylist()
    assert found == [f"q:d{number:03}" for number in range(100)]


def test_routes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="a/#/b"):
        check_routes([Route(APPLICATION, "a", "a/#/b")])
    with pytest.raises(ConfigError, match="QoS 0"):
        check_routes([Route(QUEUE, "d", "a", 0)])


def test_what_tasks_have_written_is_added_up() -> None:
    parts = [Written("b", 1, 2, 3), Written("", 5), Written("b", 10)]
    assert together(parts) == [Written("", 5), Written("b", 11, 2, 3)]
