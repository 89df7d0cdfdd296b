"""What a client was sent, and a crash has taken from the store, comes again with DUP.

A message of QoS 1 is sent before its private stream is safe, so a power cut, or the end of a broker
whose store is a server, takes what a replay, a group or a retained message gave, and not that it
was received.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.mqtt.packets import Properties, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.delivery.test_backfill_past import World
from tests.unit.broker.harness import Client, make_sim

ALL = Properties(user_properties=(("replay-from", "0"),))


def recorded(count: int, *, retain: bool = False) -> SimBroker:
    """A broker with messages that are safe, none of which was sent."""
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(clean=True, expiry_s=0)
    for number in range(count):
        publisher.deliver(f"t/{number}", b"%d" % number, retain=retain)
    sim.run_for(3_000_000)
    return sim


def replay(client: Client) -> None:
    client.subscribe("t/#", qos=1, properties=ALL)


def retained(client: Client) -> None:
    client.subscribe("t/#", qos=1)


def sent(client: Client) -> dict[bytes, list[bool]]:
    """What comes, and whether with DUP."""
    client.sim.run_for(300_000)
    found: dict[bytes, list[bool]] = {}
    for each in client.take_all(Publish):
        found.setdefault(each.payload, []).append(each.dup)
    return found


def lose_power(sim: SimBroker, client: Client) -> None:
    """Once the client has something."""
    sim.run_until(lambda: bool(client.messages))
    assert client.messages
    sim.kill(power=True)
    sim.start()
    assert client.connect().session_present


@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.parametrize("wants", [replay, retained])
@pytest.mark.parametrize("acks", [False, True])
def test_what_a_page_gave_comes_again_with_dup(
    wants: Callable[[Client], None], *, acks: bool
) -> None:
    sim = recorded(6, retain=wants is retained)
    client = Client(sim, "c", acks=acks)
    client.connect()
    wants(client)
    lose_power(sim, client)
    assert sent(client) == {b"%d" % number: [True] for number in range(6)}


@pytest.mark.spec("MQTT-3.3.1-1")
def test_what_was_not_sent_either_keeps_it_over_another_connection() -> None:
    sim = recorded(6)
    client = Client(sim, "c", acks=False)
    client.connect()
    replay(client)
    lose_power(sim, client)
    sim.run_for(300_000)
    client.disconnect()
    client.connect(receive_maximum=1)
    sim.run_for(300_000)
    assert [each.dup for each in client.take_all(Publish)] == [True]
    client.disconnect()
    client.acks = True
    client.connect()
    assert sent(client) == {b"%d" % number: [True] for number in range(6)}


def test_what_is_asked_for_after_the_crash_is_new() -> None:
    sim = recorded(6)
    client = Client(sim, "c")
    client.connect()
    client.subscribe("other")
    sim.run_for(3_000_000)
    sim.kill(power=True)
    sim.start()
    assert client.connect().session_present
    replay(client)
    assert sent(client) == {b"%d" % number: [False] for number in range(6)}


@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.parametrize("count", [1, 6])
def test_what_a_group_gave_comes_again_with_dup(count: int) -> None:
    """By one and as a run."""
    sim = recorded(0)
    absent = Client(sim, "c")
    absent.connect()
    absent.subscribe("$share/g/t/#", qos=1)
    absent.disconnect()
    publisher = Client(sim, "p")
    publisher.connect(clean=True, expiry_s=0)
    for number in range(count):
        publisher.deliver(f"t/{number}", b"%d" % number)
    sim.run_for(3_000_000)
    absent.connect()
    lose_power(sim, absent)
    assert sent(absent) == {b"%d" % number: [True] for number in range(count)}


@pytest.mark.spec("MQTT-3.3.1-1")
def test_a_connection_in_between_that_is_given_less_changes_nothing() -> None:
    """It has acknowledged all that it was given, and the archive had no more then."""
    world = World()
    sim = world.sim
    bodies = world.publish(12)
    world.rotate()
    world.archive()
    world.publish(1)
    world.drop()
    client = Client(sim, "c")
    client.connect()
    world.past.is_away = True
    replay(client)
    sim.run_for(3_000_000)
    assert sim.scheduler is not None
    sim.scheduler.blocking_us = (10**12, 10**12)
    world.past.is_away = False
    sim.run_for(300_000)
    assert [each.payload for each in client.messages][:12] == bodies
    sim.kill(power=True)
    sim.blocking_us = (1_000, 1_000)
    sim.start()
    world.attach()

    def goes_away() -> None:
        world.past.is_away = len(world.past.asked) > 1

    world.past.on_read = goes_away
    client.connect()
    few = sent(client)
    assert 0 < len(few) < 12
    client.disconnect()
    world.past.on_read = lambda: None
    world.past.is_away = False
    client.connect()
    again = few | sent(client)
    assert {body: again[body] for body in bodies} == {body: [True] for body in bodies}
