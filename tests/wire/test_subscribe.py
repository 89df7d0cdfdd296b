"""MQTT 3.1.1, sections 3.8 to 3.11: SUBSCRIBE, UNSUBSCRIBE and what they change."""

from __future__ import annotations

import pytest

from tests import servers
from tests.wire.clients import (
    UNLIMITED,
    Clients,
    numbered,
    payloads_of,
    send_publishes,
    take_publishes,
)
from tests.wire.packets import Kind, Reason

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-3.8.4-5")
@pytest.mark.spec("MQTT-3.8.4-6")
@pytest.mark.spec("MQTT-3.8.4-7")
@pytest.mark.spec("MQTT-3.9.3-1")
@pytest.mark.spec("MQTT-3.9.3-2")
@pytest.mark.spec("MQTT-3.8.4-5@3.1.1")
@pytest.mark.spec("MQTT-3.8.4-6@3.1.1")
@pytest.mark.spec("MQTT-3.9.3-1@3.1.1")
@pytest.mark.parametrize(
    "wanted",
    [(0,), (1,), (2,), (0, 1, 2), (2, 1, 0), (1, 1, 1), (2, 0, 2, 0), (0, 1, 2) * 20],
    ids=lambda wanted: f"{len(wanted)}-{''.join(map(str, wanted[:4]))}",
)
def test_one_code_for_each_filter_in_order(
    clients: Clients, name: str, wanted: tuple[int, ...]
) -> None:
    """All QoS are granted as asked for, and delivered so."""
    peer = clients.join(name)
    filters = [(f"{name}/{index}", qos) for index, qos in enumerate(wanted)]
    peer.subscribe(*filters, codes=wanted)
    for topic, qos in filters:
        peer.publish(topic, b"x", qos=2)
        peer.receive_publish(topic, b"x", qos=qos)


@pytest.mark.spec("MQTT-3.8.4-4@3.1.1")
def test_many_filters_in_one_packet(clients: Clients, name: str) -> None:
    """As if each had come in a SUBSCRIBE of its own."""
    peer = clients.join(name)
    peer.subscribe(*((f"{name}/{index}", 1) for index in range(1000)))
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, f"{name}/999", [b"last"], qos=1)
    send_publishes(publisher, f"{name}/0", [b"first"], qos=1)
    peer.receive_publish(f"{name}/999", b"last", qos=1)
    peer.receive_publish(f"{name}/0", b"first", qos=1)


@pytest.mark.spec("MQTT-3.8.4-4@3.1.1")
@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
@pytest.mark.parametrize("qos", [(0, 2), (2, 0), (1, 2), (2, 1)])
def test_same_filter_twice_in_one_packet(clients: Clients, name: str, qos: tuple[int, int]) -> None:
    """Handled as a sequence: the second replaces the first, and there is one subscription."""
    peer = clients.join(name)
    peer.subscribe((name, qos[0]), (name, qos[1]), codes=qos)
    peer.publish(name, b"x", qos=2)
    peer.receive_publish(name, b"x", qos=qos[1])
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.8.4-3")
@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_resubscribe_replaces(clients: Clients, name: str, before: int, after: int) -> None:
    """The newer maximum QoS holds, and nothing is delivered twice."""
    peer = clients.join(name)
    peer.subscribe((f"{name}/+", before))
    peer.publish(f"{name}/t", b"1", qos=2)
    peer.receive_publish(f"{name}/t", b"1", qos=before)
    peer.subscribe((f"{name}/+", after))
    peer.publish(f"{name}/t", b"2", qos=2)
    peer.receive_publish(f"{name}/t", b"2", qos=after)
    peer.expect_nothing()
    peer.unsubscribe(f"{name}/+")
    peer.publish(f"{name}/t", b"3", qos=2)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
@pytest.mark.trap(18)
def test_downgrade_to_qos_0_with_messages_in_flight(clients: Clients, name: str) -> None:
    """What is in flight is finished as it began; nothing leaks, however often it is repeated."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    for _ in range(30):
        peer.subscribe((name, 1))
        send_publishes(publisher, name, numbered(40), qos=1)
        in_flight = take_publishes(peer, 40)
        publisher.take(Kind.PUBACK, 40)
        peer.subscribe((name, 0))
        publisher.publish(name, b"lower", qos=1)
        peer.receive_publish(name, b"lower", qos=0)
        peer.send(*(clients.build.puback(found.packet_id) for found in in_flight))
    peer.subscribe((name, 2))
    publisher.publish(name, b"end", qos=2)
    peer.receive_publish(name, b"end", qos=2)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.8.4-4")
@pytest.mark.trap(29)
@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
def test_resubscribe_does_not_interrupt_the_flow(clients: Clients, name: str) -> None:
    """Messages published around a re-subscription all arrive, each once."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1))
    for index in range(30):
        publisher.send(clients.build.publish(name, b"%d" % index, qos=1, packet_id=index + 1))
        peer.send(clients.build.subscribe((name, 1 + index % 2), packet_id=index + 1))
        peer.take(Kind.SUBACK, index + 1)
        publisher.take(Kind.PUBACK, index + 1)
    got = [peer.take(Kind.PUBLISH).payload for _ in range(30)]
    assert got == numbered(30)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.4-2")
@pytest.mark.spec("MQTT-3.3.5-1@3.1.1")
@pytest.mark.parametrize(
    ("filters", "best"),
    [
        ((("{}/a/b", 0), ("{}/#", 2)), 2),
        ((("{}/a/b", 1), ("{}/+/b", 0)), 1),
        ((("{}/a/+", 2), ("{}/a/b", 1), ("{}/a/#", 0)), 2),
        ((("{}/a/b", 0), ("{}/a/#", 0), ("{}/#", 0)), 0),
        ((("{}/+/+", 1), ("{}/#", 1), ("{}/a/b/#", 1)), 1),
    ],
    ids=["0-2", "1-0", "2-1-0", "0-0-0", "1-1-1"],
)
@pytest.mark.parametrize("published", [0, 1, 2])
def test_overlapping_subscriptions(
    clients: Clients, name: str, published: int, filters: tuple[tuple[str, int], ...], best: int
) -> None:
    """Delivered at the highest QoS of all; further copies MAY follow at that of their own.

    Perdure sends one copy. Mosquitto does too, but at the QoS of any one of them.
    """
    peer = clients.join(name)
    peer.subscribe(*((topic_filter.format(name), qos) for topic_filter, qos in filters))
    peer.publish(f"{name}/a/b", b"x", qos=published)
    peer.receive_publish(f"{name}/a/b", b"x", qos=min(published, best))
    peer.expect_nothing()


@pytest.mark.trap(51)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("topic_filter", ["{}/t", "{}/+", "{}/#"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_suback_means_that_it_is_in_effect(
    clients: Clients, name: str, qos: int, topic_filter: str, clean: bool
) -> None:
    """A message published right after the SUBACK is delivered, every time."""
    publisher = clients.join(f"{name}-publisher")
    for index in range(20):
        own = f"{name}{index}"
        peer = clients.join(own, clean=clean)
        peer.subscribe((topic_filter.format(own), qos))
        packet_id = index + 1 if qos else None
        publisher.send(clients.build.publish(f"{own}/t", b"now", qos=qos, packet_id=packet_id))
        if qos == 2:
            publisher.send(clients.build.pubrel(index + 1))
        peer.receive_publish(f"{own}/t", b"now", qos=qos)


@pytest.mark.spec("MQTT-3.3.5-1@3.1.1")
@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (0, 1, 2)])
def test_overlapping_subscriptions_of_an_offline_session(
    clients: Clients, name: str, order: tuple[int, int, int]
) -> None:
    """What is read from storage follows the same rule as what is live."""
    filters = [f"{name}/a/b", f"{name}/+/b", f"{name}/#"]
    pairs = list(zip(filters, order, strict=True))
    clients.durable(name, *pairs).disconnect()
    publisher = clients.join(f"{name}-publisher")
    topics = {"a/b": max(order), "c/b": max(order[1:]), "c": order[2]}
    for topic in topics:
        publisher.publish(f"{name}/{topic}", b"x", qos=2)
    again = clients.resume(name)
    for topic, qos in topics.items():
        if qos:
            again.receive_publish(f"{name}/{topic}", b"x", qos=qos)
    again.publish(f"{name}/a/b", b"end", qos=2)
    again.receive_publish(f"{name}/a/b", b"end", qos=max(order))


# --- UNSUBSCRIBE -------------------------------------------------------------------------


@pytest.mark.spec("MQTT-3.10.4-1")
@pytest.mark.spec("MQTT-3.10.4-1@3.1.1")
@pytest.mark.parametrize(
    ("subscribed", "unsubscribed"),
    [
        ("{}/a/b", "{}/a/+"),
        ("{}/a/b", "{}/#"),
        ("{}/a/+", "{}/a/b"),
        ("{}/a/#", "{}/a"),
        ("{}/a/#", "{}/a/b"),
        ("{}/#", "{}/+/+"),
        ("{}/a/b", "{}/a/B"),
        ("{}/a/b", "{}/a/b/"),
        ("{}/a/b", "/{}/a/b"),
        ("{}/a/b", "{}/a"),
        ("{}/a/b", "$share/g/{}/a/b"),
    ],
)
def test_unsubscribe_compares_characters(
    clients: Clients, name: str, subscribed: str, unsubscribed: str
) -> None:
    """A filter is removed by its own name only, not by one that covers it."""
    peer = clients.join(name)
    peer.subscribe((subscribed.format(name), 1))
    peer.unsubscribe(unsubscribed.format(name), codes=(Reason.NO_SUBSCRIPTION,))
    peer.publish(f"{name}/a/b", b"still", qos=1)
    peer.receive_publish(f"{name}/a/b", b"still", qos=1)
    peer.unsubscribe(subscribed.format(name))
    peer.publish(f"{name}/a/b", b"gone", qos=1)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.10.4-5")
@pytest.mark.spec("MQTT-3.10.4-6")
@pytest.mark.spec("MQTT-3.11.3-1")
@pytest.mark.spec("MQTT-3.11.3-2")
@pytest.mark.spec("MQTT-3.10.4-2@3.1.1")
@pytest.mark.spec("MQTT-3.10.4-6@3.1.1")
def test_unsubscribe_from_many(clients: Clients, name: str) -> None:
    """As if each had come in an UNSUBSCRIBE of its own; the others stay."""
    peer = clients.join(name)
    peer.subscribe(*((f"{name}/{index}", 1) for index in range(6)))
    given = [f"{name}/0", f"{name}/2", f"{name}/nothing", f"{name}/4", f"{name}/4"]
    peer.unsubscribe(*given, codes=(0, 0, Reason.NO_SUBSCRIPTION, 0, Reason.NO_SUBSCRIPTION))
    for index in range(6):
        peer.publish(f"{name}/{index}", b"x", qos=1)
        if index % 2:
            peer.receive_publish(f"{name}/{index}", b"x", qos=1)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.10.4-2@3.1.1")
def test_unsubscribe_leaves_overlapping_ones(clients: Clients, name: str) -> None:
    """The filter that is left delivers, at its own QoS."""
    peer = clients.join(name)
    peer.subscribe((f"{name}/t", 2), (f"{name}/#", 1))
    peer.unsubscribe(f"{name}/t")
    peer.publish(f"{name}/t", b"x", qos=2)
    peer.receive_publish(f"{name}/t", b"x", qos=1)
    peer.unsubscribe(f"{name}/#")
    peer.publish(f"{name}/t", b"y", qos=2)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.10.4-3")
@pytest.mark.spec("MQTT-3.10.4-3@3.1.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_unsubscribe_completes_what_has_begun(clients: Clients, name: str, qos: int) -> None:
    """Messages in flight are finished, after a reconnect too."""
    peer = clients.durable(name, (name, qos))
    peer.publish(name, b"x", qos=qos)
    found = peer.expect_publish(name, b"x", qos=qos)
    peer.unsubscribe(name)
    peer.close()
    again = clients.resume(name)
    again.receive_publish(name, b"x", qos=qos, dup=True, packet_id=found.packet_id)
    again.publish(name, b"y", qos=qos)
    again.expect_nothing()


def test_unsubscribe_and_subscribe_again(clients: Clients, name: str) -> None:
    """What was published in between is not delivered, what follows is."""
    peer = clients.durable(name, (name, 1))
    for payload in numbered(10):
        peer.unsubscribe(name)
        peer.publish(name, b"between", qos=1)
        peer.subscribe((name, 1))
        peer.publish(name, payload, qos=1)
        peer.receive_publish(name, payload, qos=1)
    peer.disconnect()
    again = clients.resume(name)
    again.publish(name, b"end", qos=1)
    again.receive_publish(name, b"end", qos=1)


@pytest.mark.trap(29)
@pytest.mark.skipif(
    servers.BACKEND != "rocksdb", reason="QoS 0 overtakes a backlog that is read from a server"
)
def test_changes_while_offline_messages_wait(clients: Clients, name: str) -> None:
    """Subscriptions changed before the backlog was delivered: what is owed stays owed."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (f"{name}/a", 1), (f"{name}/b", 1))
    peer.disconnect()
    for payload in numbered(5):
        publisher.publish(f"{name}/a", payload, qos=1)
        publisher.publish(f"{name}/b", payload, qos=1)
    again = clients.join(name, clean=False, present=True)
    again.subscribe((f"{name}/a", 0))
    again.unsubscribe(f"{name}/b")
    publisher.publish(f"{name}/a", b"live", qos=1)
    publisher.publish(f"{name}/b", b"live", qos=1)
    got: dict[str, list[bytes]] = {f"{name}/a": [], f"{name}/b": []}
    while got[f"{name}/a"][-1:] != [b"live"]:
        found = again.take(Kind.PUBLISH)
        got[found.topic].append(found.payload)
        if found.qos:
            again.send(clients.build.puback(found.packet_id))
    assert got[f"{name}/a"] == [*numbered(5), b"live"]
    # [MQTT-3.10.4-3] lets a server deliver or drop what was buffered for a filter that is gone.
    assert got[f"{name}/b"] in ([], numbered(5))


def test_two_clients_with_one_filter(clients: Clients, name: str) -> None:
    """A subscription belongs to its session: one leaving does not touch the other."""
    one, two = clients.join(f"{name}-1"), clients.join(f"{name}-2")
    one.subscribe((name, 1))
    two.subscribe((name, 2))
    one.unsubscribe(name)
    two.publish(name, b"x", qos=2)
    two.receive_publish(name, b"x", qos=2)
    one.expect_nothing()
    one.subscribe((name, 0))
    two.disconnect()
    one.publish(name, b"y", qos=2)
    one.receive_publish(name, b"y", qos=0)


def test_own_messages_come_back(clients: Clients, name: str) -> None:
    """3.1.1 has no no-local: a publisher that subscribes gets its own messages."""
    peer = clients.join(name)
    peer.subscribe((f"{name}/#", 2))
    for payload in numbered(5):
        peer.publish(f"{name}/t", payload, qos=1)
    assert payloads_of(take_publishes(peer, 5)) == numbered(5)
