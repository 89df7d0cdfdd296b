"""What a session's client sends us: QoS 2 identifiers awaiting release, and our receive maximum.

An inbound QoS 2 message is taken over when its PUBLISH is committed with its packet identifier
(method A of MQTT 5.0 figure 4.3). Until PUBREL the identifier is *awaiting release*: the same
identifier again is the same message, whatever its DUP flag says (traps 10 and 11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

RECEIVE_NEW: Final = 0
"""A new message: take it."""
RECEIVE_DUPLICATE: Final = 1
"""Taken already: answer PUBREC again, deliver nothing."""
RECEIVE_EXCEEDED: Final = 2
"""More unacknowledged messages than our Receive Maximum (0x93)."""


@final
class Inbound:
    """The inbound half of a session.

    Args:
        awaiting_release: identifiers from an earlier connection.
        receive_maximum: most QoS 1 and 2 messages that the client may have unacknowledged on
            this connection, >= 1.
    """

    __slots__ = ("awaiting_release", "receive_maximum", "unacknowledged")

    def __init__(self, awaiting_release: Iterable[int], *, receive_maximum: int) -> None:
        # A set, as a dict: an empty one takes a quarter of the memory.
        self.awaiting_release: dict[int, None] = dict.fromkeys(awaiting_release)
        self.receive_maximum: int = receive_maximum
        # [MQTT-3.3.4-9] counts PUBLISHes of this connection whose PUBACK, PUBCOMP or failed
        # PUBREC has not been sent.
        self.unacknowledged: int = 0

    def publish_qos1(self) -> bool:
        """A QoS 1 PUBLISH came; False if it exceeds the receive maximum."""
        self.unacknowledged += 1
        return self.unacknowledged <= self.receive_maximum

    def publish_qos2(self, packet_id: int) -> int:
        """A QoS 2 PUBLISH came. Returns RECEIVE_NEW (and remembers it), _DUPLICATE, _EXCEEDED."""
        if packet_id in self.awaiting_release:
            return RECEIVE_DUPLICATE
        if self.unacknowledged >= self.receive_maximum:
            return RECEIVE_EXCEEDED
        self.unacknowledged += 1
        self.awaiting_release[packet_id] = None
        return RECEIVE_NEW

    def reject_qos2(self, packet_id: int) -> None:
        """The message was refused or its commit failed: the identifier is free again."""
        self.awaiting_release.pop(packet_id, None)
        self.acknowledged(1)

    def release(self, packet_id: int) -> bool:
        """PUBREL came. Whether the identifier was awaiting release."""
        if packet_id in self.awaiting_release:
            del self.awaiting_release[packet_id]
            return True
        return False

    def acknowledged(self, count: int) -> None:
        """Final acknowledgements (PUBACK, PUBCOMP, failed PUBREC) were sent."""
        self.unacknowledged = max(0, self.unacknowledged - count)
