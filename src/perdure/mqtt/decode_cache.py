"""Topic names and properties of PUBLISH, kept decoded: most packets repeat those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from perdure.mqtt.decode_header import LEVELS_FREE, TOPIC_COST_SHIFT
from perdure.mqtt.packets import PUBLISH
from perdure.mqtt.primitives import name_of
from perdure.mqtt.properties import MessageProperties, check_topic_name, read_message_properties

if TYPE_CHECKING:
    # A machine word in the compiled build; an int is asked at each step whether it is one.
    from mypy_extensions import i64

TOPICS_CACHED_MAX: Final = 16_384
"""Topic names kept decoded, for all connections: the string is shared and so is its hash."""
TOPIC_CACHED_BYTES_MAX: Final = 256
"""Longer topic names are not cached: the cache stays under about 10 MB whatever peers send."""

PROPERTIES_CACHED_MAX: Final = 4_096
"""Properties of messages kept decoded: a publisher's content type or alias seldom changes."""
PROPERTIES_CACHED_BYTES_MAX: Final = 128
"""Longer properties are not cached."""


@final
@mypyc_attr(acyclic=True)
class KnownTopic:
    """A topic name.

    Attributes:
        cost: work of a PUBLISH to it beyond its own unit, in units (``decode_header``).
        raw: the bytes that it was read from.
    """

    __slots__ = ("cost", "name", "raw")

    def __init__(self, raw: bytes, name: str) -> None:
        self.raw: bytes = raw
        self.name: str = name
        self.cost: i64 = max(0, name.count("/") - LEVELS_FREE) + (len(raw) >> TOPIC_COST_SHIFT)


NO_TOPIC: Final = KnownTopic(b"", "")

topics: Final[dict[bytes, KnownTopic]] = {}
message_properties: Final[dict[bytes, MessageProperties]] = {}


def topic_of(raw: bytes) -> KnownTopic:
    """A topic name, validated; empty is for the caller to judge.

    Raises:
        MqttError: it is no topic name.
    """
    topic = topics.get(raw)
    if topic is not None:
        return topic
    if not raw:
        return NO_TOPIC
    name = name_of(raw)
    check_topic_name(name, "topic name")  # [MQTT-3.3.2-2]
    topic = KnownTopic(raw, name)
    if len(raw) <= TOPIC_CACHED_BYTES_MAX:
        if len(topics) >= TOPICS_CACHED_MAX:
            # All of it at once: topics that are in use come back at their next PUBLISH.
            topics.clear()
        topics[raw] = topic
    return topic


def new_properties(raw: bytes, properties_max: int) -> MessageProperties:
    """Read the properties of a PUBLISH that the cache does not hold; never changed afterwards.

    Those that the cache holds are too short to be too many.
    """
    found = read_message_properties(raw, 0, len(raw), PUBLISH, properties_max)
    if len(raw) <= PROPERTIES_CACHED_BYTES_MAX and not found.correlated:
        if len(message_properties) >= PROPERTIES_CACHED_MAX:
            message_properties.clear()
        message_properties[raw] = found
    return found
