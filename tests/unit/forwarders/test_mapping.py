"""Topics and payloads at the other side."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.forwarders.mapping import TopicMap, envelope
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties


@pytest.mark.parametrize(
    ("strip", "template", "topic", "mapped"),
    [
        ("", "{topic}", "a/b", "a/b"),
        ("site/", "cloud/{topic}", "site/a/b", "cloud/a/b"),
        ("site/", "cloud/{topic}", "other/a", "cloud/other/a"),
        ("", "x/{2}/{1}/{9}", "a/b/c", "x/b/a/"),
        ("", "fixed", "a/b", "fixed"),
        ("", "{1}", "{2}/b", "{2}"),
    ],
)
def test_topics(strip: str, template: str, topic: str, mapped: str) -> None:
    assert TopicMap(strip, template, setting="s")(topic) == mapped


@pytest.mark.parametrize(
    "template", ["", "{0}", "{name}", "a/{}", "a/#", "{topic}/+", "a+b/{1}", "a\0b"]
)
def test_a_template_that_makes_no_topic_is_refused(template: str) -> None:
    with pytest.raises(ConfigError):
        TopicMap("", template, setting="forwarders.x.topic")


def test_an_envelope_says_all() -> None:
    properties = forward_properties(
        Properties(content_type="text/plain", user_properties=(("a", "1"), ("a", "2")))
    )
    text = Message("t", b"21.5", 1, True, "pump", properties, 0, 5, 7)
    assert envelope(text) == {
        "offset": 7,
        "topic": "t",
        "qos": 1,
        "retain": True,
        "publisher": "pump",
        "published_at_us": 5,
        "content_type": "text/plain",
        "user_properties": [["a", "1"], ["a", "2"]],
        "payload": "21.5",
    }
    assert envelope(Message("t", b"\xff\x00"))["payload_base64"] == "/wA="
