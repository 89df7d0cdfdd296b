"""The syntax of topic names, topic filters and ``$share`` filters (MQTT 5.0 sections 4.7, 4.8.2).

Knows nothing of subscriptions or sessions. Everything else in this room takes names and filters
that have passed here; what has not passed here has no meaning to it.
"""

from __future__ import annotations

from typing import Final

from perdure.errors import MqttError
from perdure.limits import UTF8_STRING_BYTES_MAX
from perdure.mqtt.reason_codes import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID

SHARE_PREFIX: Final = "$share/"


def validate_topic_name(topic: str, *, levels_max: int) -> None:
    """Check a topic name, as of a PUBLISH or a will.

    Raises:
        MqttError: 0x90, if it is no topic name or has more than ``levels_max`` levels.
    """
    if not topic:
        # [MQTT-4.7.3-1]
        raise MqttError(TOPIC_NAME_INVALID, "a topic name must not be empty")
    if "+" in topic or "#" in topic:
        # [MQTT-3.3.2-2]
        raise MqttError(TOPIC_NAME_INVALID, "a topic name must not contain wildcards")
    _check_text(topic, TOPIC_NAME_INVALID, levels_max)
    _check_length(topic, TOPIC_NAME_INVALID)


def validate_topic_filter(topic_filter: str, *, levels_max: int) -> None:
    """Check a topic filter; of a ``$share`` filter, the share part and the filter in it.

    Raises:
        MqttError: 0x8F, if it is no topic filter or has more than ``levels_max`` levels.
    """
    _, plain = parse_shared(topic_filter)
    if not plain:
        # [MQTT-4.7.3-1]
        raise MqttError(TOPIC_FILTER_INVALID, "a topic filter must not be empty")
    _check_text(plain, TOPIC_FILTER_INVALID, levels_max)
    _check_length(topic_filter, TOPIC_FILTER_INVALID)
    validate_wildcards(plain)


def validate_wildcards(topic_filter: str) -> None:
    """Check only that each wildcard of a topic filter stands where it may.

    Raises:
        MqttError: 0x8F, if one does not.
    """
    if "+" not in topic_filter and "#" not in topic_filter:
        return
    levels = topic_filter.split("/")
    last = levels.pop()
    if last not in ("#", "+") and ("#" in last or "+" in last):
        raise MqttError(TOPIC_FILTER_INVALID, "a wildcard must be a whole level")
    for level in levels:
        if "#" in level:
            # [MQTT-4.7.1-1]
            raise MqttError(TOPIC_FILTER_INVALID, "# must be the last level of a topic filter")
        if "+" in level and level != "+":
            # [MQTT-4.7.1-2]
            raise MqttError(TOPIC_FILTER_INVALID, "a wildcard must be a whole level")


def parse_shared(topic_filter: str) -> tuple[str, str]:
    """Split ``$share/{group}/{filter}`` into group and filter.

    Returns:
        The group and the filter; the group is empty if the filter is not shared.

    Raises:
        MqttError: 0x8F, if the filter begins with ``$share/`` and does not go on as it must.
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return "", topic_filter
    group, slash, plain = topic_filter[len(SHARE_PREFIX) :].partition("/")
    if not group:
        # [MQTT-4.8.2-1]
        raise MqttError(TOPIC_FILTER_INVALID, "a shared subscription needs a group name")
    if "+" in group or "#" in group:
        # [MQTT-4.8.2-2]
        raise MqttError(TOPIC_FILTER_INVALID, "a group name must not contain wildcards")
    if not slash or not plain:
        # [MQTT-4.8.2-2]
        raise MqttError(TOPIC_FILTER_INVALID, "a shared subscription needs a topic filter")
    return group, plain


def is_wildcard(topic_filter: str) -> bool:
    """Whether a valid topic filter has a wildcard."""
    return "+" in topic_filter or "#" in topic_filter


def _check_text(text: str, reason_code: int, levels_max: int) -> None:
    """What names and filters have in common: no U+0000, and a bound on levels."""
    if "\0" in text:
        # [MQTT-4.7.3-2]
        raise MqttError(reason_code, "a topic must not contain U+0000")
    if text.count("/") >= levels_max:
        raise MqttError(reason_code, f"a topic may have at most {levels_max} levels")


def _check_length(text: str, reason_code: int) -> None:
    """The bound on the whole text, the share part of a filter included."""
    # A character is at most four bytes, so only long texts have to be encoded to know.
    if len(text) * 4 > UTF8_STRING_BYTES_MAX and len(text.encode()) > UTF8_STRING_BYTES_MAX:
        # [MQTT-4.7.3-3]
        raise MqttError(reason_code, f"a topic may have at most {UTF8_STRING_BYTES_MAX} bytes")
