"""The client against a scripted broker behind real listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from perdure.errors import MqttError, UsageError
from perdure.mqtt.client_events import Connected, Published
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
)
from perdure.net.client import Client
from perdure.net.listener import Listener
from perdure.net.tls import client_context
from tests.support.bounds import HANG_S
from tests.unit.net.fake_broker import FakeBroker, FakeConnection, endpoint
from tests.unit.net.helpers import Bench, Certificates

T = TypeVar("T")
FILTER = SubscribeFilter("a/#", 1, False, False, 0)


@pytest_asyncio.fixture
async def broker(bench: Bench) -> FakeBroker:
    return FakeBroker(bench)


async def within(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, HANG_S)


async def connected(
    broker: FakeBroker, listener: Listener | None = None, **options: Any
) -> tuple[Client, FakeConnection, Connected]:
    listener = listener or broker.listen()
    client = Client(ClientProtocol(client_id="c", **options), endpoint(listener))
    connecting = asyncio.create_task(client.connect())
    connection = await broker.connection()
    await connection.accept()
    return client, connection, await within(connecting)


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
async def test_a_whole_life_on_every_transport(
    broker: FakeBroker, certificates: Certificates, kind: str
) -> None:
    secure = kind in ("tls", "wss")
    listener = broker.listen(kind, tls=certificates.tls() if secure else None)
    context = client_context(cafile=certificates["ca.pem"]) if secure else None
    client = Client(ClientProtocol(client_id="c"), endpoint(listener, tls=context))
    assert not client.is_connected
    connecting = asyncio.create_task(client.connect())
    connection = await broker.connection()
    assert (await connection.accept()).client_id == "c"
    assert not (await within(connecting)).session_present
    assert client.is_connected
    subscribing = asyncio.create_task(client.subscribe([FILTER]))
    subscribe = await connection.next(Subscribe)
    connection.send(Suback(subscribe.packet_id, [1], Properties()))
    assert (await within(subscribing)).reasons == [1]
    connection.send(Publish("a/b", b"x" * 100_000, 0))
    (message,) = await within(client.next_batch())
    assert (message.topic, len(message.payload)) == ("a/b", 100_000)
    publishing = asyncio.create_task(client.publish("t", b"y" * 100_000, 1))
    publish = await connection.next(Publish)
    assert len(publish.payload) == 100_000
    connection.send(Ack(PUBACK, publish.packet_id))
    assert (await within(publishing)).reason == 0
    leaving = asyncio.create_task(client.disconnect())
    assert (await connection.next(Disconnect)).reason == 0
    connection.stream.close()
    await within(leaving)
    await connection.gone()
    assert not client.is_connected
    assert await client.next_batch() == []


async def test_a_refusal_is_an_error_with_its_code(broker: FakeBroker) -> None:
    for version, reason, expected in ((5, 0x87, "Not authorized: no"), (4, 5, "")):
        listener = broker.listen()
        client = Client(ClientProtocol(version, "c"), endpoint(listener))
        connecting = asyncio.create_task(client.connect())
        connection = await broker.connection()
        await connection.next(Connect)
        connection.send(Connack(False, reason, Properties(reason_string="no")))
        with pytest.raises(MqttError) as refusal:
            await within(connecting)
        assert refusal.value.reason_code == reason
        assert refusal.value.message.startswith(expected)
        assert refusal.value.message
        await connection.gone()


async def test_nobody_there(bench: Bench) -> None:
    listener = bench.listen()
    listener.stop_accepting()
    with pytest.raises(ConnectionRefusedError):
        await Client(ClientProtocol(), endpoint(listener)).connect()


async def test_a_server_that_says_nothing(broker: FakeBroker) -> None:
    client = Client(ClientProtocol(), endpoint(broker.listen()))
    with pytest.raises(TimeoutError):
        await client.connect(timeout_s=0.05)
    connection = await broker.connection()
    await connection.next(Connect)
    await connection.gone()


async def test_a_server_that_hangs_up(broker: FakeBroker) -> None:
    client = Client(ClientProtocol(), endpoint(broker.listen()))
    connecting = asyncio.create_task(client.connect())
    (await broker.connection()).stream.close()
    with pytest.raises(ConnectionResetError):
        await within(connecting)


async def test_a_server_that_speaks_nonsense(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    connection.stream.write(b"\x00\x00")
    with pytest.raises(MqttError) as failure:
        await within(client.next_batch())
    assert failure.value.reason_code == 0x82
    assert (await connection.next(Disconnect)).reason == 0x82
    await connection.gone()


async def test_a_websocket_server_that_refuses(broker: FakeBroker) -> None:
    listener = broker.listen("ws", path="/elsewhere")
    with pytest.raises(ConnectionAbortedError, match="404"):
        await Client(ClientProtocol(), endpoint(listener)).connect()


async def test_disconnect_by_the_server_reaches_everybody(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    subscribing = asyncio.create_task(client.subscribe([FILTER]))
    publishing = asyncio.create_task(client.publish("t", b"", 1))
    reading = asyncio.create_task(client.next_batch())
    await connection.next(Subscribe)
    await connection.next(Publish)
    connection.send(Publish("last", b"words"), Disconnect(0x8B, Properties()))
    assert [message.topic for message in await within(reading)] == ["last"]
    for task in (subscribing, publishing, asyncio.create_task(client.next_batch())):
        with pytest.raises(MqttError, match="Server shutting down") as failure:
            await within(task)
        assert failure.value.reason_code == 0x8B
    await within(client.wait_closed())
    await connection.gone()


async def test_a_cut_connection_reaches_everybody(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    publishing = asyncio.create_task(client.publish("t", b"", 1))
    reading = asyncio.create_task(client.next_batch())
    await connection.next(Publish)
    connection.stream.abort()
    for task in (publishing, reading):
        with pytest.raises(ConnectionResetError):
            await within(task)
    with pytest.raises(ConnectionResetError):
        await client.publish("t", b"", 1)


async def test_a_posted_message_is_settled_by_the_next_connection(broker: FakeBroker) -> None:
    listener = broker.listen()
    client, connection, _ = await connected(broker, listener, clean_start=False)
    settled = client.post("t", b"once", 2)
    first = await connection.next(Publish)
    client.abort()
    await within(client.wait_closed())
    assert not settled.done()
    connecting = asyncio.create_task(client.connect())
    second = await broker.connection()
    await second.accept(session_present=True)
    assert (await within(connecting)).session_present
    again = await second.next(Publish)
    assert (again.packet_id, again.dup, again.payload) == (first.packet_id, True, b"once")
    second.send(Ack(PUBREC, again.packet_id))
    await second.next(Ack)
    second.send(Ack(PUBCOMP, again.packet_id))
    assert await within(settled) == Published(1, 0, Properties())
    client.abort()


async def test_a_refused_message_is_an_error(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    publishing = asyncio.create_task(client.publish("t", b"", 1))
    publish = await connection.next(Publish)
    connection.send(Ack(PUBACK, publish.packet_id, 0x97, Properties(reason_string="full")))
    with pytest.raises(MqttError, match="full") as failure:
        await within(publishing)
    assert failure.value.reason_code == 0x97
    client.abort()


async def test_messages_in_order_until_disconnect(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    connection.send(*(Publish("t", b"%d" % number) for number in range(100)))
    seen: list[bytes] = []
    async for message in client.messages():
        seen.append(message.payload)
        if len(seen) == 100:
            leaving = asyncio.create_task(client.disconnect())
            await connection.next(Disconnect)
            connection.stream.close()
    await within(leaving)
    assert seen == [b"%d" % number for number in range(100)]


async def test_reading_pauses_while_nobody_takes_messages(broker: FakeBroker) -> None:
    listener = broker.listen(write_high_bytes=1 << 16, write_low_bytes=1 << 12)
    client = Client(ClientProtocol(), endpoint(listener), messages_max=10)
    connecting = asyncio.create_task(client.connect())
    connection = await broker.connection()
    await connection.accept()
    await within(connecting)
    body = bytes(50_000)
    for _ in range(400):
        connection.send(Publish("t", body))
    for _ in range(200):
        await asyncio.sleep(0)
    assert connection.stream.write_buffer_size() > 0
    taken = 0
    while taken < 400:
        batch = await within(client.next_batch())
        assert len(batch) < 100
        taken += len(batch)
    client.abort()
    await connection.gone()


async def test_manual_acknowledgements(broker: FakeBroker) -> None:
    listener = broker.listen()
    client, connection, _ = await connected(broker, listener, manual_acks=True, clean_start=False)
    connection.send(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 1, packet_id=2))
    connection.send(Publish("t", b"0"))
    (first, *rest) = await within(client.next_batch())
    while len(rest) < 2:
        rest += await within(client.next_batch())
    client.ack(first)
    assert await connection.next(Ack) == Ack(PUBACK, 1)
    connection.send(Publish("t", b"3", 1, packet_id=3), Publish("t", b"4"))
    connection.stream.close()
    await within(client.wait_closed())
    client.ack(rest[0])
    client.forget_unacknowledged()
    assert [message.payload for message in await client.next_batch()] == [b"4"]


async def test_unsubscribe(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    leaving = asyncio.create_task(client.unsubscribe(["a/#"]))
    packet = await connection.next(Unsubscribe)
    assert packet.filters == ["a/#"]
    connection.send(Unsuback(packet.packet_id, [0x11], Properties()))
    assert (await within(leaving)).reasons == [0x11]
    client.abort()


async def test_idle_clients_ping_and_silent_servers_are_left(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.net.client_keep_alive.PING_AFTER", 0.02)
    client, connection, _ = await connected(broker, keep_alive=1)
    await connection.next(Pingreq)
    connection.send(Pingresp())
    await connection.next(Pingreq)
    with pytest.raises(TimeoutError, match="PINGREQ"):
        await within(client.next_batch())
    await connection.gone()


async def test_who_says_goodbye_does_not_ping(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker, keep_alive=1)
    assert client._keep_alive.is_running
    leaving = asyncio.create_task(client.disconnect())
    await connection.next(Disconnect)
    assert not client._keep_alive.is_running
    await within(leaving)


async def test_the_server_may_set_the_keep_alive(broker: FakeBroker) -> None:
    client = Client(ClientProtocol(keep_alive=60), endpoint(broker.listen()))
    connecting = asyncio.create_task(client.connect())
    connection = await broker.connection()
    await connection.accept(server_keep_alive=0)
    await within(connecting)
    assert not client._keep_alive.is_running
    client.abort()


async def test_much_data_is_drained(broker: FakeBroker) -> None:
    client, connection, _ = await connected(broker)
    connection.stream.pause_reading()
    publishing = asyncio.create_task(client.publish("t", bytes(8 * 1024 * 1024)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not publishing.done()
    connection.stream.resume_reading()
    await within(publishing)
    client.abort()


async def test_misuse_is_told_at_once(broker: FakeBroker) -> None:
    client = Client(ClientProtocol(), endpoint(broker.listen()))
    with pytest.raises(ConnectionResetError):
        client.post("t", b"")
    with pytest.raises(ConnectionResetError):
        await client.subscribe([FILTER])
    with pytest.raises(UsageError):
        client.post("a/#", b"", 1)
    await client.disconnect()
    client.abort()


async def test_a_goodbye_right_after_the_welcome(broker: FakeBroker) -> None:
    client = Client(ClientProtocol(), endpoint(broker.listen()))
    connecting = asyncio.create_task(client.connect())
    connection = await broker.connection()
    await connection.next(Connect)
    connection.send(Connack(False, 0, Properties()), Disconnect(0x89, Properties()))
    await within(connecting)
    for attempt in (
        client.subscribe([FILTER]),
        client.unsubscribe(["a"]),
        client.publish("t", b""),
    ):
        with pytest.raises(MqttError) as failure:
            await within(attempt)
        assert failure.value.reason_code == 0x89
    client.abort()
    await connection.gone()
