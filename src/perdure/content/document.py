"""What filters look at in one message: its payload as a JSON value, and its user properties.

What a message says depends on its bytes alone, never on when or where it is asked: a filter is
tried on it live, on what the log has of it, and in Spark, and all have to agree.

Invariant: looking at a message never raises, whatever its bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.errors import MqttError
from perdure.limits import CONTENT_BYTES_MAX, CONTENT_DEPTH_MAX
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward

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
        forward: properties in wire form (``Message.properties``), in place of ``properties``.
    """

    __slots__ = ("_decoded", "_forward", "_pairs", "_payload", "_root")

    def __init__(self, payload: bytes, properties: Pairs = (), forward: bytes = b"") -> None:
        self._payload: bytes = payload
        self._root: object = MISSING
        self._decoded: bool = False
        self._pairs: Pairs = properties
        self._forward: bytes = forward

    def root(self) -> object:
        """The payload as a JSON value, or ``MISSING``."""
        if not self._decoded:
            self._decoded = True
            self._root = decode_json(self._payload)
        return self._root

    def pairs(self) -> Pairs:
        """The user properties, in order."""
        if self._forward:
            try:
                self._pairs = properties_from_forward(self._forward).user_properties
            except MqttError:
                self._pairs = ()
            self._forward = b""
        return self._pairs


def content_of(message: Message) -> Content:
    """What filters see of a message."""
    return Content(message.payload, (), message.properties)


def decode_json(payload: bytes) -> object:
    """The value of a JSON text; ``MISSING`` if it is none, too large or nested too deep."""
    if len(payload) > CONTENT_BYTES_MAX:
        return MISSING
    try:
        root: object = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return MISSING
    # How deep the decoder goes depends on who calls it: what all of them can read is read.
    if payload.count(b"[") + payload.count(b"{") > CONTENT_DEPTH_MAX and is_too_deep(root):
        return MISSING
    return root


def is_too_deep(root: object) -> bool:
    """Whether objects and arrays are nested more than ``CONTENT_DEPTH_MAX`` deep."""
    level: list[object] = [root]
    for _ in range(CONTENT_DEPTH_MAX):
        following: list[object] = []
        for value in level:
            if isinstance(value, dict):
                following.extend(value.values())
            elif isinstance(value, list):
                following.extend(value)
        if not following:
            return False
        level = following
    return any(isinstance(value, dict | list) for value in level)
