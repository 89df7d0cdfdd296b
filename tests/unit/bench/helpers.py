"""Clients of the bench, connected to nothing."""

from __future__ import annotations

from perdure.bench.client import Client
from perdure.bench.meter import Meter
from perdure.bench.publisher import Publisher
from perdure.bench.stamp import Stream
from perdure.bench.subscriber import Subscriber
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connack, Packet, Properties, Suback

TAG = 5


def connack(
    version: int = 4, *, present: bool = False, receive_maximum: int | None = None
) -> bytes:
    properties = Properties(receive_maximum=receive_maximum)
    return encode(Connack(present, 0, properties), version)


def ready(client: Client, *, receive_maximum: int | None = None) -> None:
    """Take a client through its handshake."""
    client.open()
    client.received(connack(client.version, receive_maximum=receive_maximum), 1)
    if client.filters:
        client.received(encode(Suback(1, [1]), client.version), 2)
    client.out.clear()
    assert client.is_ready


def publisher(
    *, qos: int = 1, version: int = 4, streams: int = 1, meter: Meter | None = None
) -> Publisher:
    """A connected publisher."""
    made = [
        Stream(number, f"t/{number}", qos=qos, version=version, payload_size=32)
        for number in range(1, streams + 1)
    ]
    client = Publisher("p", version=version, streams=made, tag=TAG, meter=meter or Meter())
    ready(client)
    return client


def subscriber(*, qos: int = 1, version: int = 4, follow: bool = False) -> Subscriber:
    """A connected subscriber."""
    client = Subscriber(
        "s", version=version, filters=(("t/#", qos),), tag=TAG, meter=Meter(), follow=follow
    )
    ready(client)
    return client


def packets_of(data: bytes, version: int) -> list[Packet]:
    """What a broker reads from a client: a CONNECT and after it, or what comes later."""
    decoder = Decoder(server_side=True, packet_size_max=1_000_000, version=version)
    decoder.connected = data[:1] != b"\x10"
    packets = decoder.feed(data)
    assert decoder.failure is None
    return packets


def output(client: Client) -> bytes:
    """Take what a client has put out."""
    data = b"".join(client.out)
    client.out.clear()
    return data
