"""Sockets for peers: each is kept connected to a broker that comes and goes.

It moves bytes and knows nothing of what is in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, final

from tests.support import packets
from tests.support.peers import Peer

P = TypeVar("P", bound=Peer)

RETRY_S = 0.02


class Link(asyncio.Protocol):
    """The socket of one peer."""

    def __init__(self, peer: Peer, after: Callable[[], None]) -> None:
        self.peer = peer
        self.closed = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._after = after

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.write(self.peer.connect())

    def data_received(self, data: bytes) -> None:
        self.write(self.peer.receive(data))
        self._after()

    def connection_lost(self, error: Exception | None) -> None:
        self.peer.is_connected = False
        self.transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    def write(self, data: bytes) -> None:
        if data and self.transport is not None:
            self.transport.write(data)


@final
class PeerConnection(Generic[P]):
    """A peer, whether it is wanted online, and its link while there is one.

    Args:
        peer: what speaks.
        port: where to, or what chooses a port for each connection.
        after: called when bytes were taken.
    """

    def __init__(
        self, peer: P, port: int | Callable[[], int], *, after: Callable[[], None] = lambda: None
    ) -> None:
        self.peer = peer
        self.is_wanted = True
        self.link: Link | None = None
        self._port = port
        self._after = after
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())

    def write(self, data: bytes) -> None:
        """Send, if there is a link."""
        if self.link is not None:
            self.link.write(data)

    def cut(self) -> None:
        """Close the connection without DISCONNECT."""
        if self.link is not None and self.link.transport is not None:
            self.link.transport.abort()

    async def close(self) -> None:
        """End it for good."""
        self.write(packets.disconnect())
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.link is not None and self.link.transport is not None:
            self.link.transport.close()
            await self.link.closed

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self.is_wanted:
                try:
                    port = self._port if isinstance(self._port, int) else self._port()
                    _, self.link = await loop.create_connection(
                        lambda: Link(self.peer, self._after), "127.0.0.1", port
                    )
                    # Closing cancels the wait, not what is waited for.
                    await asyncio.shield(self.link.closed)
                except OSError:
                    pass
                self.link = None
            await asyncio.sleep(RETRY_S)
