"""Unit tests of the syntax of topic names, filters and $share."""

from __future__ import annotations

import pytest

from perdure.errors import MqttError
from perdure.topic.names import (
    is_wildcard,
    parse_shared,
    validate_topic_filter,
    validate_topic_name,
    validate_wildcards,
)

GOOD_NAMES = ["a", "/", "a/b", "a//b", "/a", "a/", "$SYS/x", " ", "ä/日本/😀", "$", "$share/g/a"]
BAD_NAMES = ["", "+", "a/+", "a+b", "#", "a/#", "a#", "a\0b"]


@pytest.mark.spec("MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", GOOD_NAMES)
def test_good_names_pass(topic: str) -> None:
    validate_topic_name(topic, levels_max=4)


@pytest.mark.spec("MQTT-3.3.2-2")
@pytest.mark.parametrize("topic", BAD_NAMES)
def test_bad_names_are_refused_with_topic_name_invalid(topic: str) -> None:
    with pytest.raises(MqttError) as caught:
        validate_topic_name(topic, levels_max=4)
    assert caught.value.reason_code == 0x90


GOOD_FILTERS = [
    *GOOD_NAMES,
    "+",
    "#",
    "/#",
    "/+",
    "+/+/+/#",
    "a/+/b",
    "a/#",
    "$SYS/#",
    "$share/g/+/#",
    "$share/g/a/b/c/d",
    "$share",
    "$shared/x",
]
BAD_FILTERS = [
    "",
    "a\0",
    "a+",
    "a/b+",
    "+a/b",
    "a/+b/c",
    "a#",
    "a/b#",
    "#/a",
    "a/#/b",
    "a/##",
    "++",
    "#+",
    "+#",
    "$share/",
    "$share//a",
    "$share/g",
    "$share/g/",
    "$share/+/a",
    "$share/g+/a",
    "$share/g#/a",
    "$share/#",
    "$share/g/a+",
    "$share/g/#/a",
    "$share/g/a\0",
]


@pytest.mark.parametrize("topic_filter", GOOD_FILTERS)
def test_good_filters_pass(topic_filter: str) -> None:
    validate_topic_filter(topic_filter, levels_max=4)


@pytest.mark.spec("MQTT-4.7.1-1")
@pytest.mark.spec("MQTT-4.7.1-2")
@pytest.mark.spec("MQTT-4.8.2-1")
@pytest.mark.spec("MQTT-4.8.2-2")
@pytest.mark.parametrize("topic_filter", BAD_FILTERS)
def test_bad_filters_are_refused_with_topic_filter_invalid(topic_filter: str) -> None:
    with pytest.raises(MqttError) as caught:
        validate_topic_filter(topic_filter, levels_max=4)
    assert caught.value.reason_code == 0x8F


def test_levels_are_bounded_and_the_share_part_does_not_count() -> None:
    validate_topic_name("a/b/c", levels_max=3)
    validate_topic_filter("a/+/#", levels_max=3)
    validate_topic_filter("$share/g/a/+/#", levels_max=3)
    for topic in ("a/b/c/", "////"):
        with pytest.raises(MqttError, match="at most 3 levels"):
            validate_topic_name(topic, levels_max=3)
    for topic_filter in ("a/+/c/#", "$share/g/a/b/c/d"):
        with pytest.raises(MqttError, match="at most 3 levels"):
            validate_topic_filter(topic_filter, levels_max=3)


@pytest.mark.spec("MQTT-4.7.3-3")
def test_length_is_counted_in_bytes() -> None:
    validate_topic_name("x" * 65_535, levels_max=1)
    validate_topic_name("ä" * 32_767, levels_max=1)
    for topic in ("x" * 65_536, "ä" * 32_768):
        with pytest.raises(MqttError, match="at most 65535 bytes"):
            validate_topic_name(topic, levels_max=1)
    with pytest.raises(MqttError, match="at most 65535 bytes"):
        validate_topic_filter("$share/g/" + "x" * 65_535, levels_max=1)


def test_parse_shared() -> None:
    assert parse_shared("$share/group/a/+/#") == ("group", "a/+/#")
    assert parse_shared("$share/group//") == ("group", "/")
    assert parse_shared("a/b") == ("", "a/b")
    assert parse_shared("$share") == ("", "$share")


def test_is_wildcard() -> None:
    assert is_wildcard("a/+")
    assert is_wildcard("#")
    assert not is_wildcard("a/b")


@pytest.mark.parametrize("topic_filter", ["", "a", "#", "+", "a/+/#", "$share/g/a/#", "x" * 70_000])
def test_wildcards_that_stand_where_they_may(topic_filter: str) -> None:
    validate_wildcards(topic_filter)


@pytest.mark.parametrize("topic_filter", ["a#", "#/a", "+a", "a/b+", "##", "$share/g+/a"])
def test_wildcards_that_do_not(topic_filter: str) -> None:
    with pytest.raises(MqttError) as caught:
        validate_wildcards(topic_filter)
    assert caught.value.reason_code == 0x8F
