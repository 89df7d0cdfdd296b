"""A peer in the virtual network: it connects, loses its connection, and reconnects.

What is said is the peer's business (``peers``); here is only when.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Generic, TypeVar, final

from tests.support.network import Network, Wire
from tests.support.peers import Peer
from tests.support.scheduler import VirtualLoop

PeerT = TypeVar("PeerT", bound=Peer)

RETRY_US = (1_000, 20_000)
"""Least and most time before a peer tries to connect again."""


@final
class _Handler:
    """Handler of one connection: its identity tells late bytes of an earlier one."""

    def __init__(
        self, received: Callable[[_Handler, bytes], None], lost: Callable[[_Handler], None]
    ) -> None:
        self.wire: Wire | None = None
        self._received = received
        self._lost = lost

    def received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._received(self, data)

    def lost(self) -> None:
        """The connection is gone."""
        self._lost(self)


@final
class SimPeerConnection(Generic[PeerT]):
    """Keeps a peer connected; a connection that is lost is opened again.

    Args:
        peer: who is connected.
        network: where it connects.
        loop: when it tries again.
        chance: after how long.

    Attributes:
        is_wanted: it shall be connected; else it stays away once its connection is gone.
        connects: connections that were tried.
    """

    def __init__(
        self, peer: PeerT, network: Network, loop: VirtualLoop, chance: random.Random
    ) -> None:
        self.peer = peer
        self.is_wanted = True
        self.connects = 0
        self._network = network
        self._loop = loop
        self._chance = chance
        self._handler: _Handler | None = None
        self._is_waiting = False

    def connect(self) -> None:
        """Connect now, anew; an open connection is left behind without a word."""
        self.is_wanted = True
        self.vanish()
        handler = _Handler(self._received, self._lost)
        handler.wire = self._network.connect(handler)
        if handler.wire is None:
            self._try_later()
            return
        self.connects += 1
        self._handler = handler
        self.write(self.peer.connect())

    def vanish(self) -> None:
        """Leave the present connection without telling the broker."""
        if self._handler is not None and self._handler.wire is not None:
            self._handler.wire.vanish()
        self._handler = None
        self.peer.is_connected = False

    def leave(self, *, goodbye: bytes = b"") -> None:
        """Say goodbye, close the connection in order, and stay away."""
        self.is_wanted = False
        if self._handler is not None and self._handler.wire is not None:
            self._handler.wire.send(goodbye)
            self._handler.wire.hang_up()
        self._handler = None
        self.peer.is_connected = False

    def cut(self) -> None:
        """The connection breaks."""
        if self._handler is not None and self._handler.wire is not None:
            self._handler.wire.cut()

    def stop_taking(self) -> None:
        """Read nothing for a while."""
        if self._handler is not None and self._handler.wire is not None:
            self._handler.wire.stop_taking()

    def take_again(self) -> None:
        """Read again."""
        if self._handler is not None and self._handler.wire is not None:
            self._handler.wire.take_again()

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a connection."""
        if data and self._handler is not None and self._handler.wire is not None:
            self._handler.wire.send(data)

    def _received(self, handler: _Handler, data: bytes) -> None:
        if handler is self._handler:
            self.write(self.peer.receive(data))

    def _lost(self, handler: _Handler) -> None:
        if handler is self._handler:
            self._handler = None
            self.peer.is_connected = False
            if self.is_wanted:
                self._try_later()

    def _try_later(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.call_later(self._chance.randint(*RETRY_US), self._retry)

    def _retry(self) -> None:
        self._is_waiting = False
        if self.is_wanted and self._handler is None:
            self.connect()
