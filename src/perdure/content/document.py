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

_MSGPACK: Final = frozenset(
    ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
)
_msgpack: Final = msgspec.msgpack.Decoder()


@final
class Content:
    """One message as filters see it. Its payload and its properties are decoded once at most.

    Args:
        payload: application bytes.
        properties: user properties, in order.
        forward: properties in wire form (``Message.properties``), in place of ``properties`` and
            ``content_type``.
        content_type: MIME type of the payload; empty = not said.
    """

    __slots__ = ("_content_type", "_decoded", "_forward", "_pairs", "_payload", "_root")

    def __init__(
        self,
        payload: bytes,
        properties: Pairs = (),
        forward: bytes = b"",
        content_type: str = "",
    ) -> None:
        self._content_type: str = content_type
        self._payload: bytes = payload
        self._root: object = MISSING
        self._decoded: bool = False
        self._pairs: Pairs = properties
        self._forward: bytes = forward

    def root(self) -> object:
        """The payload as a JSON value, or ``MISSING``."""
        if not self._decoded:
            self._decoded = True
            if self._forward:
                self._read_properties()
            if self._content_type and is_msgpack(self._content_type):
                self._root = decode_msgpack(self._payload)
            else:
                self._root = decode_json(self._payload)
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


def is_msgpack(content_type: str) -> bool:
    """Whether a MIME type says MessagePack."""
    return content_type.partition(";")[0].strip().lower() in _MSGPACK


def decode_msgpack(payload: bytes) -> object:
    """The value of a MessagePack text, as JSON would have it; ``MISSING`` if it is none, too large,
    nested too deep, or has a map with a key that is no text."""
    if len(payload) > CONTENT_BYTES_MAX:
        return MISSING
    try:
        root: object = _msgpack.decode(payload)
    except (ValueError, RecursionError, TypeError):
        return MISSING
    return MISSING if is_too_deep(root) else _as_json(root)


def _as_json(value: object) -> object:
    """A value without what JSON does not have: bytes, times and extensions are not there."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return MISSING
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return MISSING


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
