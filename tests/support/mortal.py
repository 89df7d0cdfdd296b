"""A client that always dies: its will must come once."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from tests.support import packets
from tests.support.delivery import Ledger, Stamp
from tests.support.packets import Packet, Splitter
from tests.support.peers import Peer


@final
class Mortal(Peer):
    """Each of its connections has a will of its own, and ends without DISCONNECT.

    A will is owed from CONNACK on; before it may come or not, but not twice.

    Args:
        ledger: where wills are written down, as messages of this client.
        clock: wall time in microseconds.
    """

    def __init__(
        self, client_id: str, *, protocol: int, ledger: Ledger, clock: Callable[[], int]
    ) -> None:
        super().__init__(client_id, protocol=protocol)
        self._ledger = ledger
        self._clock = clock
        self._topic = f"wills/{client_id}"
        self._stamp: Stamp | None = None

    def connect(self) -> bytes:
        """CONNECT with the next will; the session ends with the connection."""
        self.is_connected = False
        self._splitter = Splitter()
        stamp = self._ledger.send(self.client_id, self._topic, qos=2, at_us=self._clock())
        self._stamp = stamp
        return packets.connect(
            self.client_id,
            protocol=self.protocol,
            clean=True,
            expiry_s=0,
            will=(self._topic, stamp.encode(32), 2),
        )

    def on_connected(self) -> bytes:
        """From now on the will is owed."""
        assert self._stamp is not None
        self._ledger.acknowledge(self._topic, self._stamp, at_us=self._clock())
        return b""

    def on_packet(self, packet: Packet) -> bytes:
        """Nothing else should come."""
        self.blame(f"an unexpected packet of type {packet.kind}")
        return b""
