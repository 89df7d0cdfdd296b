"""The oldest message that a client has not acknowledged, and what it holds up.

Packet identifiers are given in a row (``seqno``), so the next one after a whole round is that of
the oldest message: while it stays unacknowledged, at most 65,534 messages are sent after it, even
if the client acknowledges all of them.
"""

from __future__ import annotations

from typing import final

import msgspec

from perdure.model import Cursor
from perdure.session.seqno import PACKET_IDS, packet_id_of


@final
class Head(msgspec.Struct, frozen=True):
    """The oldest unacknowledged message of a session.

    Attributes:
        serial, packet_id: its numbers.
        sent_after: messages that were sent after it.
        settled_after: how many of them are acknowledged, and wait for it all the same.
        is_released: its PUBREC came: only PUBCOMP is missing.
        is_blocking: no packet identifier is left, so nothing more is sent.
    """

    serial: int
    packet_id: int
    sent_after: int
    settled_after: int
    is_released: bool
    is_blocking: bool

    @property
    def awaits(self) -> str:
        """What the client has to send."""
        return "PUBCOMP" if self.is_released else "PUBACK or PUBREC"


def unacknowledged_head(cursor: Cursor) -> Head | None:
    """The oldest message that was sent and is not settled; None if there is none."""
    serial = cursor.serial + 1
    sent = max(cursor.sent, cursor.released[-1] if cursor.released else 0)
    if sent < serial:
        return None
    return Head(
        serial=serial,
        packet_id=packet_id_of(serial),
        sent_after=sent - serial,
        settled_after=len(cursor.settled),
        is_released=serial in cursor.released,
        is_blocking=sent - cursor.serial >= PACKET_IDS,
    )
