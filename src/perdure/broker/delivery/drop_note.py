"""How a client is note that messages were dropped before the one that it gets."""

from __future__ import annotations

from typing import Final

from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties

DROPPED_PROPERTY: Final = "perdure-dropped"
"""User property with the number of messages dropped before the one that carries it."""


def with_drop_note(message: Message, count: int) -> Message:
    """A copy of a message with the user property that tells how many were dropped before."""
    note = Properties(user_properties=((DROPPED_PROPERTY, str(count)),))
    return Message(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.publisher,
        message.properties + forward_properties(note),
        message.expires_at_us,
        message.published_at_us,
        message.offset,
    )
