"""Loop protection: each message carries through which brokers it came, as user properties.

A bridge adds the identity of the broker that it leaves; one that names the broker at the other end
does not go there, and one that comes back is not taken. 3.1.1 has no properties: there the other
broker is told that we are a bridge, and does not send us what is ours (``output``).
"""

from __future__ import annotations

from typing import Final

from perdure.model import Message
from perdure.model.bridge import VIA
from perdure.mqtt.encode import forward_properties, properties_from_forward
from perdure.mqtt.packets import Properties

HOPS_MAX: Final = 16
"""Bridges that a message passes at most."""

_MARK: Final = VIA.encode()


def marks(properties: bytes) -> tuple[str, ...]:
    """The brokers that a message has left by a bridge.

    Args:
        properties: of the message, in wire form.
    """
    if _MARK not in properties:
        return ()
    pairs = properties_from_forward(properties).user_properties
    return tuple(value for name, value in pairs if name == VIA)


def mark_bytes(origin: str) -> bytes:
    """The property that a broker adds, in wire form; empty = it has no identity."""
    return forward_properties(Properties(user_properties=((VIA, origin),))) if origin else b""


def goes_round(message: Message, target: str) -> bool:
    """Whether a message has been at the target, or has gone too far."""
    passed = marks(message.properties)
    return bool(passed) and (target in passed or len(passed) >= HOPS_MAX)
