"""What filters look at in one message: its payload as JSON would have it, and its user properties.

What a message says depends on its bytes alone, never on when or where it is asked: a filter is
tried on it live, on what the log has of it, and in Spark, and all have to agree.

Invariant: looking at a message never raises, whatever its bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from perdure.errors import MqttError
from perdure.limits import CONTENT_BYTES_MAX, PAYLOAD_VALUES_MAX
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward
from perdure.payloads import schemaless
from perdure.payloads.formats import decoder_of_message
from perdure.payloads.values import Undecodable

Pairs = Sequence[tuple[str, str]]


@final
class Missing:
    """Stands for a value that is not there; null is one that is."""

    __slots__ = ()


MISSING: Final = Missing()


@final
class Content:
    """One message as filters see it. Its payload and its properties are decoded once at most.

    Args:
        payload: application bytes.
        properties: user properties, in order.
        forward: properties in wire form (``Message.properties``), in place of ``properties`` and
            ``content_type``.
        content_type: MIME type of the payload; empty = not said.
        topic: of the message; Sparkplug's says what the payload is.
    """

    __slots__ = ("_content_type", "_decoded", "_forward", "_pairs", "_payload", "_root", "_topic")

    def __init__(
        self,
        payload: bytes,
        properties: Pairs = (),
        forward: bytes = b"",
        content_type: str = "",
        topic: str = "",
    ) -> None:
        self._topic: str = topic
        self._content_type: str = content_type
        self._payload: bytes = payload
        self._root: object = MISSING
        self._decoded: bool = False
        self._pairs: Pairs = properties
        self._forward: bytes = forward

    def root(self) -> object:
        """The payload as JSON would have it, or ``MISSING``."""
        if not self._decoded:
            self._decoded = True
            if self._forward:
                self._read_properties()
            self._root = decode(self._payload, self._content_type, self._topic)
        return self._root

    def pairs(self) -> Pairs:
        """The user properties, in order."""
        if self._forward:
            self._read_properties()
        return self._pairs

    def _read_properties(self) -> None:
        try:
            found = properties_from_forward(self._forward)
        except MqttError:
            self._pairs = ()
        else:
            self._pairs = found.user_properties
            self._content_type = found.content_type or ""
        self._forward = b""


def content_of(message: Message) -> Content:
    """What filters see of a message."""
    return Content(message.payload, (), message.properties, "", message.topic)


def decode(payload: bytes, content_type: str = "", topic: str = "") -> object:
    """The value of a payload in the format that its message says; ``MISSING`` if it is none, too
    large, or nested too deep."""
    if len(payload) > CONTENT_BYTES_MAX:
        return MISSING
    decoder = decoder_of_message(content_type, topic)
    if decoder is schemaless.json and schemaless.opened(payload) > PAYLOAD_VALUES_MAX:
        return MISSING  # each costs a hundred times what its byte does
    try:
        return decoder(payload)
    except Undecodable:
        return MISSING
