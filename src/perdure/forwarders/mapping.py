"""What a message is called at the other side, and what its payload is there. Pure."""

from __future__ import annotations

import base64
import re
from typing import Any, Final, final

import msgspec

from perdure.errors import ConfigError
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward

_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_NO_TOPIC: Final = re.compile(r"[+#\0]")


@final
class TopicMap:
    """A template for topics.

    Args:
        strip: beginning that topics lose, if they have it.
        template: ``{topic}`` is what is left, ``{1}`` its first level, ``{2}`` the second.
        setting: for errors.

    Raises:
        ConfigError: the template has another place, or makes no topic.
    """

    __slots__ = ("_is_plain", "_strip", "_template")

    def __init__(self, strip: str, template: str, *, setting: str) -> None:
        self._strip = strip
        self._template = template
        self._is_plain = template == "{topic}"
        for name in _PLACE.findall(template):
            if name != "topic" and not (name.isdecimal() and name.isascii() and int(name) > 0):
                raise ConfigError(
                    f"{{{name}}} is no place in a topic",
                    path=setting,
                    hint="{topic} is the whole, {1} the first level",
                )
        if not template:
            raise ConfigError("a topic is not empty", path=setting)
        wrong = _NO_TOPIC.search(template)
        if wrong is not None:
            # Each message would be refused for good, and nothing be forwarded. [MQTT-3.3.2-2]
            raise ConfigError(f"a topic has no {wrong[0]!r}", path=setting)

    def __call__(self, topic: str) -> str:
        """The topic at the other side; a level that is not there is empty."""
        rest = topic.removeprefix(self._strip) if self._strip else topic
        if self._is_plain:
            return rest
        levels = rest.split("/")

        def place(found: re.Match[str]) -> str:
            name = found[1]
            if name == "topic":
                return rest
            index = int(name) - 1
            return levels[index] if index < len(levels) else ""

        return _PLACE.sub(place, self._template)


def user_properties(message: Message) -> tuple[tuple[str, str], ...]:
    """The user properties of a message, in order."""
    if not message.properties:
        return ()
    return properties_from_forward(message.properties).user_properties


def envelope(message: Message) -> dict[str, Any]:
    """A message as JSON can say it: a payload that is no UTF-8 text is ``payload_base64``."""
    told: dict[str, Any] = {
        "offset": message.offset,
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "publisher": message.publisher,
        "published_at_us": message.published_at_us,
    }
    if message.properties:
        properties = properties_from_forward(message.properties)
        for name in ("content_type", "response_topic", "payload_format_indicator"):
            value = getattr(properties, name)
            if value is not None:
                told[name] = value
        if properties.correlation_data is not None:
            told["correlation_data_base64"] = _base64(properties.correlation_data)
        if properties.user_properties:
            told["user_properties"] = [list(pair) for pair in properties.user_properties]
    try:
        told["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        told["payload_base64"] = _base64(message.payload)
    return told


def payload_of(message: Message, kind: str) -> bytes:
    """The payload for the target: ``raw``, or the ``envelope`` as JSON."""
    return message.payload if kind == "raw" else msgspec.json.encode(envelope(message))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
