"""Silence: how much of it a client is allowed, before CONNACK and after."""

from __future__ import annotations

import pytest
from tests.unit.broker.harness import Client, make_sim, until

from perdure.broker.connection import Connection
from perdure.mqtt.packets import Disconnect, Pingreq


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
    connection = sim.live.services.registry.live["c"].holder
    assert isinstance(connection, Connection)
    connection.intake.throttle(8_000_000)
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
