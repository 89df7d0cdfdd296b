"""A broker in a thread, just clever enough for the commands, that answers as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from perdure.broker.runtime.stream import ByteStream, PeerInfo
from perdure.config.schema import LimitsConfig
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from perdure.net.admission import Admission
from perdure.net.listener import Listener
from perdure.net.settings import ListenerSettings
from tests.support.bounds import HANG_S

T = TypeVar("T")


class MiniConnection:
    def __init__(self, broker: MiniBroker, stream: ByteStream) -> None:
        self.broker = broker
        self.stream = stream
        self.decoder = Decoder(server_side=True, packet_size_max=1 << 24)

    def receive(self, data: bytes) -> None:
        for packet in self.decoder.feed(data):
            self.broker.packets.append(packet)
            self.answer(packet)
        assert self.decoder.failure is None, self.decoder.failure

    def answer(self, packet: Packet) -> None:
        broker = self.broker
        if isinstance(packet, Connect):
            present = broker.connects > 0 and not packet.clean_start
            broker.connects += 1
            self.send(Connack(present and not broker.connack, broker.connack, broker.server))
            if broker.connack:
                self.stream.close()
            elif broker.after_connect is not None:
                broker.after_connect(self)
        elif isinstance(packet, Publish):
            if broker.silent:
                return
            if packet.qos == 1:
                self.send(Ack(PUBACK, packet.packet_id, broker.puback))
            elif packet.qos == 2:
                self.send(Ack(PUBREC, packet.packet_id, broker.puback))
        elif isinstance(packet, Ack):
            if packet.kind == PUBREL:
                self.send(Ack(PUBCOMP, packet.packet_id))
        elif isinstance(packet, Subscribe):
            if broker.suback_after_s is None:
                return
            broker.loop.call_later(broker.suback_after_s, self._subscribed, packet)
        elif isinstance(packet, Unsubscribe):
            self.send(Unsuback(packet.packet_id, [0] * len(packet.filters), Properties()))
        elif isinstance(packet, Pingreq):
            self.send(Pingresp())
        elif isinstance(packet, Disconnect):
            self.stream.close()

    def _subscribed(self, packet: Subscribe) -> None:
        broker = self.broker
        reasons = broker.suback or [asked.qos for asked in packet.filters]
        self.send(Suback(packet.packet_id, reasons, Properties()), *broker.messages)
        if broker.after_subscribe is not None:
            broker.after_subscribe(self)

    def send(self, *packets: Packet) -> None:
        version = self.decoder.version
        self.stream.write(b"".join(encode(packet, version) for packet in packets))

    def connection_lost(self, exc: BaseException | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def close(self, reason_code: int) -> None:
        self.stream.close()


class MiniBroker:
    """What it answers stands in its attributes; what it got, in ``packets``."""

    def __init__(self) -> None:
        self.connack = 0
        self.server = Properties()
        self.puback = 0
        self.suback: list[int] = []
        self.suback_after_s: float | None = 0.0
        self.messages: list[Publish] = []
        self.silent = False
        self.after_connect: Callable[[MiniConnection], None] | None = None
        self.after_subscribe: Callable[[MiniConnection], None] | None = None
        self.packets: list[Packet] = []
        self.connects = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.listener: Listener

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANG_S)

    def start(self, kind: Any = "tcp", **changes: Any) -> None:
        self.thread.start()

        async def listen() -> None:
            values = {"name": "mini", "kind": kind, "host": "127.0.0.1", "port": 0} | changes
            self.listener = Listener(
                ListenerSettings(**values),
                lambda stream, peer: self.connection(stream, peer),
                admission=Admission(LimitsConfig()),
            )
            self.listener.start()

        self.call(listen())

    def connection(self, stream: ByteStream, peer: PeerInfo) -> MiniConnection:
        return MiniConnection(self, stream)

    def stop(self) -> None:
        self.call(self.listener.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(HANG_S)
        self.loop.close()

    @property
    def port(self) -> str:
        return str(self.listener.port)

    def of(self, kind: type[T]) -> list[T]:
        return [packet for packet in self.packets if isinstance(packet, kind)]
