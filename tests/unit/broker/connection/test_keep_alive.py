"""Silence: how much of it a client is allowed, before CONNACK and after."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.connection.connection import Connection
from perdure.mqtt.packets import Connack, Connect, Disconnect, Pingreq
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim, until


@pytest.mark.spec("MQTT-3.1.2-22")
def test_silence_ends_after_one_and_a_half_keep_alives() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(keep_alive_s=2)
    sim.run_for(2_900_000)
    assert not client.is_lost
    sim.run_for(200_000)
    assert client.take(Disconnect).reason == 0x8D
    assert client.is_lost


@pytest.mark.spec("MQTT-3.1.2-22")
def test_each_packet_begins_the_time_anew() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(keep_alive_s=2)
    for _ in range(5):
        sim.run_for(2_900_000)
        client.send(Pingreq())
    sim.run_for(2_900_000)
    assert not client.is_lost
    sim.run_for(200_000)
    assert client.take(Disconnect).reason == 0x8D


def test_no_keep_alive_is_no_limit() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(keep_alive_s=0)
    sim.run_for(3_600_000_000)
    assert not client.is_lost


def test_a_client_that_is_not_read_is_given_time() -> None:
    """What it sends meanwhile is not seen, so its silence says nothing."""
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(keep_alive_s=2)
    connection = sim.live.services.registry.live["c"].connection
    assert isinstance(connection, Connection)
    connection.inbound_gate.throttle(8_000_000)
    sim.run_for(7_900_000)
    assert not client.is_lost
    sim.run_for(3_000_000)
    assert client.take(Disconnect).reason == 0x8D


def test_a_connection_without_connect_is_closed_without_a_word() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.open()
    begun_us = sim.clock.monotonic_us()
    until(sim, lambda: client.is_lost)
    elapsed_us = sim.clock.monotonic_us() - begun_us
    timeout_us = sim.config.mqtt.connect_timeout_ms * 1000
    assert timeout_us <= elapsed_us <= timeout_us + 1_000_000
    assert client.received == []


def test_the_connect_timeout_ends_with_connack() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(keep_alive_s=0)
    sim.run_for(sim.config.mqtt.connect_timeout_ms * 2000)
    assert not client.is_lost


class Undecided:
    """An authenticator whose answer waits for the test."""

    def __init__(self, sim: SimBroker) -> None:
        assert sim.scheduler is not None
        self.gate = sim.scheduler.gate()
        self.result = AuthResult(ok=False, reason_code=0x86)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        await self.gate
        return self.result


def _undecided(version: int = 5) -> tuple[SimBroker, Client, Undecided]:
    sim = make_sim()
    authenticator = Undecided(sim)
    sim.live.services.authenticator = authenticator
    client = Client(sim, "c", version=version)
    client.open()
    client.send(Connect(version, True, 0, "c", username="ann", password=b"x"))
    sim.run_for(100_000)
    return sim, client, authenticator


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3)])
def test_who_waits_for_the_broker_is_told_that_it_is_busy(version: int, code: int) -> None:
    """The time in which CONNECT must come is the client's; what follows is the broker's debt."""
    sim, client, authenticator = _undecided(version)
    sim.run_for(sim.config.mqtt.connect_timeout_ms * 1000)
    assert client.take(Connack).reason == code
    assert client.is_lost
    (told,) = sim.logged("connection.refused")
    assert (told["username"], told["reason"]) == ("ann", "not decided in time")
    authenticator.gate.open()
    sim.run_for(1_000_000)


def test_the_answer_has_its_own_time() -> None:
    sim = make_sim()
    authenticator = Undecided(sim)
    sim.live.services.authenticator = authenticator
    client = Client(sim, "c")
    client.open()
    timeout_us = sim.config.mqtt.connect_timeout_ms * 1000
    sim.run_for(timeout_us - 1_000_000)
    client.send(Connect(5, True, 0, "c"))
    sim.run_for(timeout_us - 1_000_000)
    authenticator.result = AuthResult(ok=True, reason_code=0)
    authenticator.gate.open()
    sim.run_for(100_000)
    assert client.take(Connack).reason == 0


def test_a_refusal_that_waits_is_logged_at_once_and_keeps_nothing() -> None:
    sim, client, authenticator = _undecided()
    authenticator.result = AuthResult(ok=False, reason_code=0x86, delay_us=2_000_000)
    authenticator.gate.open()
    sim.run_for(1_000_000)
    (told,) = sim.logged("connection.refused")
    assert told["username"] == "ann"
    assert client.received == []
    assert not client.is_lost
    sim.run_for(1_100_000)
    assert client.take(Connack).reason == 0x86
    assert client.is_lost
    assert len(sim.logged("connection.refused")) == 1


def test_who_hangs_up_before_its_refusal_is_forgotten() -> None:
    sim, client, authenticator = _undecided()
    authenticator.result = AuthResult(ok=False, reason_code=0x86, delay_us=2_000_000)
    authenticator.gate.open()
    sim.run_for(100_000)
    client.cut()
    sim.run_for(5_000_000)
    assert sim.live.services.metrics.connections_now == 0
    assert sim.live.services.metrics.connack_sent[0x86] == 0
