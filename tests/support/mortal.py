"""Clients that always die: their wills must come once."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from tests.support import packets
from tests.support.delivery import Ledger, Stamp
from tests.support.packets import Packet, Splitter
from tests.support.peers import Peer


class _Willed(Peer):
    """Each of its connections has a will of its own.

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

    def _next_will(self) -> tuple[str, bytes, int]:
        """What the next connection leaves: topic, payload, QoS."""
        self._stamp = self._ledger.send(self.client_id, self._topic, qos=2, at_us=self._clock())
        return self._topic, self._stamp.encode(32), 2

    def on_packet(self, packet: Packet) -> bytes:
        """Nothing else should come."""
        self.blame(f"an unexpected packet of type {packet.kind}")
        return b""


@final
class Mortal(_Willed):
    """Each of its connections has a will of its own, and ends without DISCONNECT.

    A will is owed from CONNACK on; before it may come or not, but not twice.

    Args:
        ledger: where wills are written down, as messages of this client.
        clock: wall time in microseconds.
    """

    def connect(self) -> bytes:
        """CONNECT with the next will; the session ends with the connection."""
        self.is_connected = False
        self._splitter = Splitter()
        return packets.connect(
            self.client_id,
            protocol=self.protocol,
            clean=True,
            expiry_s=0,
            will=self._next_will(),
        )

    def on_connected(self) -> bytes:
        """From now on the will is owed."""
        assert self._stamp is not None
        self._ledger.acknowledge(self._topic, self._stamp, at_us=self._clock())
        return b""


@final
class Returner(_Willed):
    """Each of its connections has a delayed will of its own, ends without DISCONNECT, and is mostly
    followed by the next one in time, which withdraws it.

    So a will may come, once; owed is only that of the last connection (``stays_away``).

    Args:
        ledger: where wills are written down, as messages of this client.
        clock: wall time in microseconds.
        delay_s: of the wills.

    Attributes:
        is_gone: nobody comes back.
    """

    def __init__(
        self, client_id: str, *, ledger: Ledger, clock: Callable[[], int], delay_s: int
    ) -> None:
        super().__init__(client_id, protocol=5, ledger=ledger, clock=clock)
        self._delay_s = delay_s
        self._stands = False
        self.is_gone = False

    def connect(self) -> bytes:
        """CONNECT with the next will; the session stays."""
        self.is_connected = self._stands = False
        self._splitter = Splitter()
        return packets.connect(
            self.client_id,
            protocol=self.protocol,
            expiry_s=600,
            will=self._next_will(),
            will_delay_s=self._delay_s,
        )

    def on_connected(self) -> bytes:
        """The broker has this will now, and none before it."""
        self._stands = True
        self.session_stands()
        return b""

    def stays_away(self) -> None:
        """Its connection has gone, and no other one follows: its will is owed, if it is known which
        one the broker had last."""
        if self._stands and not self.is_gone and self._stamp is not None:
            self._ledger.acknowledge(self._topic, self._stamp, at_us=self._clock())
        self.is_gone = True
