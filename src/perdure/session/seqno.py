"""Serial number <-> packet identifier.

A serial number is the 64-bit place of a message in a session's outbound order; the packet
identifier on the wire follows from it, so it needs no store of its own and is the same after any
crash. The span of unsettled serial numbers never exceeds ``PACKET_ID_MAX``, so no two messages in
flight share an identifier (traps 1, 6 and 7).
"""

from __future__ import annotations

from typing import Final

PACKET_IDS: Final = 65_535


def packet_id_of(serial: int) -> int:
    """The packet identifier (1..65535) of a serial number (>= 1)."""
    return (serial - 1) % PACKET_IDS + 1
