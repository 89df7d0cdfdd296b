"""CONNECT: what a client's Maximum Packet Size leaves room for, and what comes first."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authenticate import AuthRequest, AuthResult, accepted
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connack, Connect, Properties
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, Client, make_sim


@pytest.mark.spec("MQTT-3.1.2-24")
def test_no_room_for_connack() -> None:
    """A client that cannot be told that it is connected is refused, and leaves no session."""
    sim = make_sim()
    client = Client(sim, "c")
    size = len(encode(client.connect(clean=True), 5))
    client.disconnect(expiry_s=0)
    for limit in (1, 2, 4, 5, 8, size - 1):
        client.open()
        limited = Properties(session_expiry_interval=60, maximum_packet_size=limit)
        client.send(Connect(5, False, 0, "c", properties=limited))
        sim.run_for(50_000)
        assert client.is_lost
        reasons = [found.reason for found in client.received if isinstance(found, Connack)]
        assert reasons == ([0x95] if limit >= 5 else [])
        assert sim.live.services.metrics.sessions_offline == 0
    client.open()
    client.send(Connect(5, False, 0, "c", properties=Properties(maximum_packet_size=size)))
    answer = client.take(Connack)
    assert (answer.reason, answer.session_present) == (0, False)


@pytest.mark.spec("MQTT-3.2.0-1")
@pytest.mark.parametrize("version", [4, 5])
def test_connack_is_the_first_packet_of_a_resumed_session(version: int) -> None:
    """A message at QoS 0 that is dispatched while CONNACK waits for its commit stays behind."""
    sim = make_sim()
    subscriber, publisher = Client(sim, "s", version=version), Client(sim, "p")
    subscriber.connect()
    subscriber.subscribe("t", qos=0)
    subscriber.cut()
    publisher.connect()
    subscriber.received.clear()
    subscriber.connect(wait=False)
    for _ in range(40):
        publisher.publish("t", b"x", qos=0)
        sim.run_for(100)
    assert isinstance(subscriber.received[0], Connack)
    assert subscriber.received[0].session_present
    # What was published after CONNACK does come.
    assert subscriber.messages


class Superuser:
    """Says of everybody that the access rules do not bind them."""

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        return accepted("password", "root", superuser=request.client_id == "s")


def test_each_connection_of_a_superuser_is_logged() -> None:
    sim = SimBroker(authenticator=Superuser(), network_profile=NO_DELAY)
    sim.start()
    for client_id in ("s", "other"):
        Client(sim, client_id).connect()
    (told,) = sim.logged("connection.superuser")
    assert (told["client_id"], told["username"], told["listener"]) == ("s", "root", "tcp")
