"""Asking for the past with ``$replay/<from>/<filter>``, which 3.1.1 clients can do too."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.wire.clients import (
    UNLIMITED,
    Clients,
    numbered,
    payloads_of,
    send_publishes,
    take_publishes,
)
from tests.wire.harness import Broker
from tests.wire.packets import Kind, Reason
from tests.wire.peer import SUBJECT

BROKER_OPTIONS = UNLIMITED
pytestmark = pytest.mark.skipif(SUBJECT != "perdure", reason="only Perdure keeps the past")


def record(clients: Clients, name: str, *topics: str, count: int = 10) -> None:
    """Publishes messages that nobody is subscribed to."""
    publisher = clients.join(f"{name}-recorder")
    for payload in numbered(count):
        for topic in topics:
            publisher.publish(topic, payload, qos=1)
    publisher.disconnect()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_everything_in_order_then_live(clients: Clients, name: str, qos: int, clean: bool) -> None:
    """From 0: all that was recorded before the subscription, then what is published."""
    record(clients, name, f"{name}/t")
    peer = clients.join(name, clean=clean)
    peer.subscribe((f"$replay/0/{name}/t", qos))
    for payload in numbered(10):
        peer.receive_publish(f"{name}/t", payload, qos=min(qos, 1), retain=False, dup=False)
    peer.publish(f"{name}/t", b"live", qos=1)
    peer.receive_publish(f"{name}/t", b"live", qos=min(qos, 1), retain=False)
    peer.expect_nothing()


@pytest.mark.parametrize("form", ["microseconds", "rfc3339", "rfc3339-offset"])
def test_from_a_time(broker: Broker, clients: Clients, name: str, form: str) -> None:
    """Only what was recorded at that time or later."""
    record(clients, name, f"{name}/t", count=5)
    moment_us = broker.now_us()
    stamp = datetime.fromtimestamp(moment_us / 1_000_000, UTC).isoformat()
    start = {
        "microseconds": str(moment_us),
        "rfc3339": stamp.replace("+00:00", "Z"),
        "rfc3339-offset": stamp,
    }[form]
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(5, 5):
        publisher.publish(f"{name}/t", payload, qos=1)
    peer = clients.join(name)
    peer.subscribe((f"$replay/{start}/{name}/t", 1))
    for payload in numbered(5, 5):
        peer.receive_publish(f"{name}/t", payload, qos=1)
    peer.expect_nothing()


def test_from_the_future(broker: Broker, clients: Clients, name: str) -> None:
    """Nothing of the past; an ordinary subscription from then on."""
    record(clients, name, f"{name}/t", count=3)
    peer = clients.join(name)
    peer.subscribe((f"$replay/{broker.now_us() + 3_600_000_000}/{name}/t", 1))
    peer.expect_nothing()


@pytest.mark.parametrize(
    ("topic_filter", "matching"),
    [
        ("{}/#", ["{}/a/x", "{}/a/y", "{}/b/x", "{}/c"]),
        ("{}/+/x", ["{}/a/x", "{}/b/x"]),
        ("{}/a/+", ["{}/a/x", "{}/a/y"]),
        ("{}/c", ["{}/c"]),
        ("{}/c/#", ["{}/c"]),
        ("{}/nothing/#", []),
        ("$x{}/#", ["$x{}/d"]),
    ],
)
@pytest.mark.trap(28)
def test_filters(clients: Clients, name: str, topic_filter: str, matching: list[str]) -> None:
    """The log's own order over all topics that match."""
    topics = [t.format(name) for t in ("{}/a/x", "{}/a/y", "{}/b/x", "{}/c", "$x{}/d")]
    record(clients, name, *topics, count=4)
    peer = clients.join(name)
    peer.subscribe((f"$replay/0/{topic_filter.format(name)}", 1))
    wanted = [topic.format(name) for topic in matching]
    for payload in numbered(4):
        for topic in wanted:
            peer.receive_publish(topic, payload, qos=1)
    peer.expect_nothing()


def test_only_what_is_recorded(clients: Clients, name: str) -> None:
    """QoS 0 is not, by default; QoS 1 and 2 are, retained or not."""
    publisher = clients.join(f"{name}-publisher")
    for qos in (0, 1, 2):
        publisher.publish(f"{name}/t", b"%d" % qos, qos=qos, retain=qos == 1)
    peer = clients.join(name)
    peer.subscribe((f"$replay/0/{name}/t", 2))
    for qos in (1, 2):
        peer.receive_publish(f"{name}/t", b"%d" % qos, qos=qos)
    peer.expect_nothing()


@pytest.mark.trap(33)
def test_live_messages_join_behind_the_replay(clients: Clients, name: str) -> None:
    """No gap, no repeat, no overtaking while messages keep coming."""
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, f"{name}/t", numbered(2000), qos=1)
    publisher.take(Kind.PUBACK, 2000)
    peer = clients.join(name)
    peer.send(clients.build.subscribe((f"$replay/0/{name}/t", 1), packet_id=1))
    send_publishes(publisher, f"{name}/t", numbered(1000, 2000), qos=1, first_id=2001)
    got = []
    while len(got) < 3000:
        found = peer.take(Kind.PUBLISH)
        got.append(found.payload)
        peer.send(clients.build.puback(found.packet_id))
    assert got == numbered(3000)
    peer.take(Kind.SUBACK, 1)
    peer.expect_nothing()


@pytest.mark.parametrize(
    "ending", ["disconnect", "abort", pytest.param("kill", marks=pytest.mark.sockets)]
)
def test_interrupted_replay_goes_on(
    broker: Broker, clients: Clients, name: str, ending: str
) -> None:
    """The replay of a durable session belongs to its state."""
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, f"{name}/t", numbered(600), qos=1)
    publisher.take(Kind.PUBACK, 600)
    peer = clients.durable(name, (f"$replay/0/{name}/t", 1))
    for payload in numbered(100):
        peer.receive_publish(f"{name}/t", payload, qos=1)
    peer.fence()
    if ending == "kill":
        clients.join().publish("settle", b"", qos=1)
        broker.kill9()
    else:
        getattr(peer, ending)()
    again = clients.resume(name)
    for payload in numbered(500, 100):
        again.receive_publish(f"{name}/t", payload, qos=1)
    again.publish(f"{name}/t", b"live", qos=1)
    again.receive_publish(f"{name}/t", b"live", qos=1)


def test_again_and_again(clients: Clients, name: str) -> None:
    """Each SUBSCRIBE replays; there is one subscription, which live messages come through once."""
    record(clients, name, f"{name}/t", count=3)
    peer = clients.join(name)
    for _ in range(3):
        peer.subscribe((f"$replay/0/{name}/t", 1))
        for payload in numbered(3):
            peer.receive_publish(f"{name}/t", payload, qos=1)
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"live", qos=1)
    peer.receive_publish(f"{name}/t", b"live", qos=1)
    peer.expect_nothing()


@pytest.mark.parametrize("plain", [True, False])
def test_unsubscribe(clients: Clients, name: str, plain: bool) -> None:
    """By the name that was subscribed, or by the filter in it."""
    record(clients, name, f"{name}/t", count=3)
    peer = clients.join(name)
    peer.subscribe((f"$replay/0/{name}/t", 1))
    assert payloads_of(take_publishes(peer, 3)) == numbered(3)
    peer.unsubscribe(f"{name}/t" if plain else f"$replay/0/{name}/t")
    peer.publish(f"{name}/t", b"x", qos=1)
    peer.expect_nothing()


def test_retained_message_is_not_sent_besides(clients: Clients, name: str) -> None:
    """It is part of the past already."""
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"kept", qos=1, retain=True)
    peer = clients.join(name)
    peer.subscribe((f"$replay/0/{name}/t", 1))
    peer.receive_publish(f"{name}/t", b"kept", qos=1)
    peer.expect_nothing()


@pytest.mark.parametrize(
    "topic_filter",
    [
        "$replay/",
        "$replay/0",
        "$replay/0/",
        "$replay//t",
        "$replay/yesterday/t",
        "$replay/-1/t",
        "$replay/1.5/t",
        "$replay/2026-13-01T00:00:00Z/t",
        "$replay/2026-01-01T00:00:00/t",
        "$replay/99999999999999999999999/t",
        "$replay/+/t",
    ],
)
def test_what_is_no_replay_filter(clients: Clients, name: str, topic_filter: str) -> None:
    """A code that refuses it, and the connection stands."""
    peer = clients.join(name)
    refused = Reason.FILTER_INVALID if clients.version >= 5 else Reason.UNSPECIFIED
    peer.subscribe((topic_filter, 1), codes=(refused,))
    peer.expect_nothing()


def test_nobody_else_is_replayed_to(clients: Clients, name: str) -> None:
    record(clients, name, f"{name}/t", count=3)
    other = clients.join(f"{name}-other")
    other.subscribe((f"{name}/t", 1))
    peer = clients.join(name)
    peer.subscribe((f"$replay/0/{name}/t", 1))
    assert payloads_of(take_publishes(peer, 3)) == numbered(3)
    other.expect_nothing()


def test_publish_to_replay_topics_is_no_replay(clients: Clients, name: str) -> None:
    """``$replay`` is a prefix of filters; a message published below it replays nothing."""
    record(clients, name, f"{name}/t", count=3)
    peer = clients.join(name)
    peer.subscribe((f"{name}/#", 1))
    peer.publish(f"$replay/0/{name}/t", b"x", qos=1)
    peer.expect_nothing()


@pytest.mark.trap(27)
@pytest.mark.parametrize("killed", [False, True])
def test_order_while_the_structure_of_topics_is_learned(
    broker: Broker, clients: Clients, name: str, killed: bool
) -> None:
    """Far more topics below one level than it takes for the log to treat that level as varying.

    Half of them come before the level is learned; every filter still gets one order.
    """
    topics = [f"{name}/devices/{index}/temperature" for index in range(300)]
    clients.durable(f"{name}-offline", (f"{name}/devices/+/temperature", 1)).disconnect()
    publisher = clients.join(f"{name}-publisher")
    rounds = 4
    for round_ in range(rounds):
        for index, topic in enumerate(topics):
            publisher.send(clients.build.publish(topic, b"%d" % round_, qos=1, packet_id=index + 1))
        for index in range(len(topics)):
            publisher.expect_ack(Kind.PUBACK, index + 1)
        if killed and round_ == 1:
            broker.kill9()
            publisher = clients.join(f"{name}-publisher")
    everything = [(topic, b"%d" % round_) for round_ in range(rounds) for topic in topics]
    offline = clients.resume(f"{name}-offline")
    for topic, payload in everything:
        offline.receive_publish(topic, payload, qos=1)
    peer = clients.join(name)
    for topic_filter in (f"{name}/#", f"{name}/+/+/temperature", f"{name}/devices/#"):
        peer.subscribe((f"$replay/0/{topic_filter}", 1))
        for topic, payload in everything:
            peer.receive_publish(topic, payload, qos=1)
        peer.unsubscribe(topic_filter)
    for topic in topics[::60]:
        peer.subscribe((f"$replay/0/{topic}", 1))
        for payload in numbered(rounds):
            peer.receive_publish(topic, payload, qos=1)
    peer.expect_nothing()
