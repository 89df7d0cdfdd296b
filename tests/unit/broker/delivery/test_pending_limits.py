"""Limits of what waits for a session: the oldest go, they are counted, and the client is told."""

from __future__ import annotations

import pytest

from perdure.config.schema import Config, SessionConfig
from perdure.mqtt.encode import properties_from_forward
from perdure.mqtt.packets import Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim


def _sim(**limits: int) -> SimBroker:
    return make_sim(config=Config(sys=QUIET, session=SessionConfig(**limits)))


def _told(message: Publish) -> int:
    """What the client is told with a message; 0 = nothing."""
    properties = properties_from_forward(message.forward)
    return int(dict(properties.user_properties).get("perdure-dropped", 0))


def _miss(sim: SimBroker, sizes: list[int], *, version: int = 5) -> Client:
    """A client that was away while messages of these sizes came, and is back."""
    publisher, reader = Client(sim, "p"), Client(sim, "r", version=version)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    reader.disconnect()
    for number, size in enumerate(sizes):
        publisher.deliver("t", b"%d" % number + b"." * (size - 1))
    reader.connect()
    sim.run_for(200_000)
    return reader


@pytest.mark.trap(24)
def test_no_limit_is_no_limit() -> None:
    """Trap 24: 0 does not mean nothing."""
    reader = _miss(_sim(), [1] * 9)
    assert [message.packet_id for message in reader.messages] == list(range(1, 10))
    assert not any(_told(message) for message in reader.messages)


def test_by_count() -> None:
    sim = _sim(pending_messages_max=3)
    reader = _miss(sim, [1] * 8)
    assert [m.payload for m in reader.messages] == [b"5", b"6", b"7"]
    # What was dropped took its identifiers.
    assert [m.packet_id for m in reader.messages] == [6, 7, 8]
    assert [_told(m) for m in reader.messages] == [5, 0, 0]
    assert sim.live.services.metrics.messages_dropped_queue_full == 5
    assert sim.live.services.registry.live["r"].record.dropped_count == 5


def test_by_bytes() -> None:
    reader = _miss(_sim(pending_bytes_max=100), [40, 40, 90, 5])
    assert [m.payload[:1] for m in reader.messages] == [b"2", b"3"]
    assert [_told(m) for m in reader.messages] == [2, 0]


def test_a_message_larger_than_the_limit_goes_too() -> None:
    reader = _miss(_sim(pending_bytes_max=100), [5, 200])
    assert reader.messages == []


def test_by_age() -> None:
    sim = _sim(pending_age_max_s=60)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    reader.disconnect()
    publisher.deliver("t", b"old")
    sim.run_for(40_000_000)
    publisher.deliver("t", b"new")
    sim.run_for(30_000_000)
    reader.connect()
    message = reader.take(Publish)
    assert (message.payload, _told(message)) == (b"new", 1)


def test_a_311_client_cannot_be_told() -> None:
    reader = _miss(_sim(pending_messages_max=1), [1, 1], version=4)
    assert [m.payload for m in reader.messages] == [b"1"]


def test_what_was_sent_is_never_dropped() -> None:
    sim = _sim(pending_messages_max=1)
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    for number in range(3):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(10_000)
    reader.disconnect()
    for number in range(3, 6):
        publisher.deliver("t", b"%d" % number)
    reader.messages.clear()
    reader.acks = True
    reader.connect()
    sim.run_for(100_000)
    assert [(m.payload, m.dup) for m in reader.messages] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
        (b"5", False),
    ]
    assert _told(reader.messages[-1]) == 2


def test_the_count_survives_a_restart() -> None:
    sim = _sim(pending_messages_max=1)
    reader = _miss(sim, [1, 1, 1])
    reader.disconnect()
    sim.kill()
    sim.start()
    reader.connect()
    assert sim.live.services.registry.live["r"].record.dropped_count == 2
