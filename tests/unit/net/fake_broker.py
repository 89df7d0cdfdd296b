"""A broker that does what a test tells it, behind a real listener."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from perdure.broker.runtime.stream import ByteStream, PeerInfo
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connack, Connect, Packet, Properties
from perdure.net.client_link import Endpoint
from perdure.net.listener import Listener
from tests.support.bounds import HANG_S
from tests.unit.net.helpers import Bench

P = TypeVar("P")


class FakeConnection:
    """The broker's side of one client."""

    def __init__(self, stream: ByteStream, peer: PeerInfo) -> None:
        self.stream = stream
        self.peer = peer
        self.decoder = Decoder(server_side=True, packet_size_max=1 << 24)
        self.packets: asyncio.Queue[Packet | None] = asyncio.Queue()
        self.lost: list[BaseException | None] = []

    def receive(self, data: bytes) -> None:
        for packet in self.decoder.feed(data):
            self.packets.put_nowait(packet)
        assert self.decoder.failure is None, self.decoder.failure

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self.packets.put_nowait(None)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def close(self, reason_code: int) -> None:
        self.stream.close()

    def send(self, *packets: Packet) -> None:
        version = self.decoder.version
        self.stream.write(b"".join(encode(packet, version) for packet in packets))

    async def next(self, kind: type[P]) -> P:
        packet = await asyncio.wait_for(self.packets.get(), HANG_S)
        assert isinstance(packet, kind), packet
        return packet

    async def accept(
        self, session_present: bool = False, reason: int = 0, **properties: Any
    ) -> Connect:
        connect = await self.next(Connect)
        self.send(Connack(session_present, reason, Properties(**properties)))
        return connect

    async def gone(self) -> None:
        packet = await asyncio.wait_for(self.packets.get(), HANG_S)
        assert packet is None, packet


class FakeBroker:
    """Takes connections one after the other."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.arrived: asyncio.Queue[FakeConnection] = asyncio.Queue()

    def make(self, stream: ByteStream, peer: PeerInfo) -> Any:
        connection = FakeConnection(stream, peer)
        self.arrived.put_nowait(connection)
        self.bench.connections.append(connection)  # type: ignore[arg-type]
        return connection

    def listen(self, kind: str = "tcp", **changes: Any) -> Listener:
        return self.bench.listen(kind, factory=self.make, **changes)

    async def connection(self) -> FakeConnection:
        return await asyncio.wait_for(self.arrived.get(), HANG_S)


def endpoint(listener: Listener, **changes: Any) -> Endpoint:
    kind = listener.settings.kind
    transport = "ws" if kind in ("ws", "wss") else "tcp"
    values = {"host": "127.0.0.1", "port": listener.port, "transport": transport}
    return Endpoint(**(values | changes))
