"""CONNECT: what a client's Maximum Packet Size leaves room for, and what comes first."""

from __future__ import annotations

import pytest
from tests.support.network import Weather
from tests.support.world import World
from tests.unit.broker.harness import Client, make_world

from perdure.broker.auth.authenticate import AuthRequest, AuthResult, accepted
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connack, Connect, Properties


@pytest.mark.spec("MQTT-3.1.2-24")
def test_no_room_for_connack() -> None:
    """A client that cannot be told that it is connected is refused, and leaves no session."""
    world = make_world()
    client = Client(world, "c")
    size = len(encode(client.connect(clean=True), 5))
    client.disconnect(expiry_s=0)
    for limit in (1, 2, 4, 5, 8, size - 1):
        client.open()
        limited = Properties(session_expiry_interval=60, maximum_packet_size=limit)
        client.send(Connect(5, False, 0, "c", properties=limited))
        world.run_for(50_000)
        assert client.is_lost
        reasons = [found.reason for found in client.received if isinstance(found, Connack)]
        assert reasons == ([0x95] if limit >= 5 else [])
        assert world.live.services.metrics.sessions_offline == 0
    client.open()
    client.send(Connect(5, False, 0, "c", properties=Properties(maximum_packet_size=size)))
    answer = client.take(Connack)
    assert (answer.reason, answer.session_present) == (0, False)


@pytest.mark.spec("MQTT-3.2.0-1")
@pytest.mark.parametrize("version", [4, 5])
def test_connack_is_the_first_packet_of_a_resumed_session(version: int) -> None:
    """A message at QoS 0 that is dispatched while CONNACK waits for its commit stays behind."""
    world = make_world()
    subscriber, publisher = Client(world, "s", version=version), Client(world, "p")
    subscriber.connect()
    subscriber.subscribe("t", qos=0)
    subscriber.cut()
    publisher.connect()
    subscriber.received.clear()
    subscriber.connect(wait=False)
    for _ in range(40):
        publisher.publish("t", b"x", qos=0)
        world.run_for(100)
    assert isinstance(subscriber.received[0], Connack)
    assert subscriber.received[0].session_present
    # What was published after CONNACK does come.
    assert subscriber.messages


class Superuser:
    """Says of everybody that the access rules do not bind them."""

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        return accepted("password", "root", superuser=request.client_id == "s")


def test_each_connection_of_a_superuser_is_logged() -> None:
    world = World(authenticator=Superuser(), weather=Weather(delays_us=(0,), pieces_max=1))
    world.start()
    for client_id in ("s", "other"):
        Client(world, client_id).connect()
    (told,) = world.logged("connection.superuser")
    assert (told["client_id"], told["username"], told["listener"]) == ("s", "root", "tcp")
