"""One connection to a broker process, packet by packet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import final

from tests.support import packets
from tests.support.bounds import HANG_S
from tests.support.packets import Packet, Splitter


@final
class Client:
    """A connection that was accepted.

    Attributes:
        session_present: what CONNACK said.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.session_present = False
        self._reader = reader
        self._writer = writer
        self._splitter = Splitter()
        self._packets: list[Packet] = []

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    async def take(self) -> Packet | None:
        """The next packet; None = the broker has closed the connection."""
        while not self._packets:
            # Not ``wait_for``: that of Python 3.11 loses a cancellation that comes with the data.
            async with asyncio.timeout(HANG_S):
                data = await self._reader.read(65536)
            if not data:
                return None
            self._packets = self._splitter.feed(data)
        return self._packets.pop(0)

    async def expect(self, kind: int) -> Packet:
        """The next packet, which is of a type."""
        packet = await self.take()
        assert packet is not None, "the broker has closed the connection"
        assert packet.kind == kind, packet
        return packet

    async def close(self) -> None:
        """Close without DISCONNECT."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the broker was first
            await self._writer.wait_closed()


@final
class Clients:
    """Makes connections, and closes them all at the end.

    Args:
        port: where the broker listens.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._made: list[Client] = []

    async def open(self, client_id: str, *, protocol: int = 4) -> tuple[Client, int]:
        """Connect a durable session; returns the client and CONNACK's code."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port))
        self._made.append(client)
        client.send(packets.connect(client_id, protocol=protocol))
        client.session_present, code = packets.read_connack(await client.expect(packets.CONNACK))
        return client, code

    async def connect(self, client_id: str, *, protocol: int = 4) -> Client:
        """Connect a durable session that is taken."""
        client, code = await self.open(client_id, protocol=protocol)
        assert not code, f"refused with {code:#04x}"
        return client

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.close() for client in self._made))
