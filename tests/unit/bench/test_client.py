"""The handshake of the generator's client."""

from __future__ import annotations

import pytest

from perdure.bench.client import KEEP_ALIVE_S, Client
from perdure.bench.errors import BenchError
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Properties,
    Suback,
    Subscribe,
    SubscribeFilter,
)
from tests.unit.bench.helpers import connack, output, packets_of


def sent(client: Client) -> list[Packet]:
    return packets_of(output(client), client.version)


@pytest.mark.parametrize("version", [4, 5])
def test_a_durable_client_connects_and_subscribes(version: int) -> None:
    client = Client(
        "c", version=version, filters=(("a/+", 1),), clean=False, username="u", password=b"p"
    )
    client.open()
    (connect,) = sent(client)
    expected = Properties(session_expiry_interval=3600) if version == 5 else Properties()
    assert connect == Connect(version, False, KEEP_ALIVE_S, "c", "u", b"p", None, expected)
    client.received(connack(version), 10)
    assert sent(client) == [Subscribe(1, [SubscribeFilter("a/+", 1)])]
    assert not client.is_ready
    client.received(encode(Suback(1, [1]), version), 20)
    assert client.is_ready
    assert (client.connected_ns, client.subscribed_ns) == (10, 20)


def test_a_session_that_is_there_needs_no_subscription() -> None:
    client = Client("c", version=4, filters=(("a", 1),), clean=False)
    client.open()
    client.out.clear()
    client.received(connack(present=True), 10)
    assert client.is_ready
    assert client.session_present
    assert client.out == []


def test_pieces_change_nothing() -> None:
    client = Client("c", version=5, filters=(("a", 1),))
    client.open()
    stream = connack(5, receive_maximum=20) + encode(Suback(1, [1]), 5) + encode(Pingresp(), 5)
    for index in range(len(stream)):
        client.received(stream[index : index + 1], index)
    assert client.is_ready
    assert client.receive_maximum == 20


@pytest.mark.parametrize(
    ("version", "packet", "told"),
    [
        (4, Connack(False, 5), "return code 5"),
        (5, Connack(False, 0x87), "0x87"),
        (5, Disconnect(0x8B), "0x8b"),
        (5, Suback(1, [0x8F]), "0x8f"),
    ],
)
def test_a_refusal_ends_the_run_with_its_reason(version: int, packet: Packet, told: str) -> None:
    client = Client("c", version=version)
    client.open()
    with pytest.raises(BenchError, match=told):
        client.received(encode(packet, version), 1)


def test_closing_sends_disconnect_and_wants_no_connection() -> None:
    client = Client("c", version=4)
    client.open()
    client.received(connack(), 1)
    client.out.clear()
    assert client.is_wanted
    client.close()
    assert sent(client) == [Disconnect()]
    assert not client.is_wanted
    assert not client.is_ready
