"""MQTT 3.1.1, section 3.3.1.3: the RETAIN flag."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.wire.clients import UNLIMITED, Clients, numbered
from tests.wire.packets import Kind
from tests.wire.peer import Peer

BROKER_OPTIONS = UNLIMITED


def retain(clients: Clients, name: str, *messages: tuple[str, bytes], qos: int = 1) -> None:
    """Publishes retained messages and leaves."""
    publisher = clients.join(f"{name}-retainer")
    publisher.send(
        *(
            clients.build.publish(
                topic, payload, qos=qos, packet_id=index if qos else None, retain=True
            )
            for index, (topic, payload) in enumerate(messages, start=1)
        )
    )
    for index in range(1, len(messages) + 1 if qos else 0):
        publisher.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, index)
        if qos == 2:
            publisher.send(clients.build.pubrel(index))
            publisher.take(Kind.PUBCOMP, index)
    if not qos:
        publisher.expect_nothing()  # what is not acknowledged is taken when a PINGREQ is answered
    publisher.disconnect()


@pytest.mark.spec("MQTT-3.3.1-5")
@pytest.mark.spec("MQTT-3.3.1-9")
@pytest.mark.spec("MQTT-3.3.1-5@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-6@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-8@3.1.1")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_new_subscription_gets_it(
    clients: Clients, name: str, published: int, granted: int
) -> None:
    """Stored with its QoS, sent with RETAIN 1 at the lower of both."""
    retain(clients, name, (name, b"kept"), qos=published)
    peer = clients.join(name)
    peer.subscribe((name, granted))
    peer.receive_publish(name, b"kept", qos=min(published, granted), retain=True, dup=False)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-9@3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_established_subscription_gets_retain_0(clients: Clients, name: str, qos: int) -> None:
    """However the message was published."""
    peer = clients.join(name)
    peer.subscribe((name, 2))
    peer.publish(name, b"kept", qos=qos, retain=True)
    peer.receive_publish(name, b"kept", qos=qos, retain=False)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-5")
@pytest.mark.spec("MQTT-3.3.1-5@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-7@3.1.1")
@pytest.mark.trap(53)
@pytest.mark.parametrize("qos", [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (1, 1)])
def test_newer_replaces_older(clients: Clients, name: str, qos: tuple[int, int]) -> None:
    """A QoS 0 message replaces too: the older one is discarded."""
    retain(clients, name, (name, b"older and longer"), qos=qos[0])
    retain(clients, name, (name, b"newer"), qos=qos[1])
    peer = clients.join(name)
    peer.subscribe((name, 2))
    peer.receive_publish(name, b"newer", qos=qos[1], retain=True)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-6")
@pytest.mark.spec("MQTT-3.3.1-7")
@pytest.mark.spec("MQTT-3.3.1-10@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-11@3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_empty_payload_removes(clients: Clients, name: str, qos: int) -> None:
    """It is passed on to current subscribers, removes the stored one and is not stored itself."""
    retain(clients, name, (name, b"kept"))
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe((name, 2))
    watcher.receive_publish(name, b"kept", retain=True)
    retain(clients, name, (name, b""), qos=qos)
    watcher.receive_publish(name, b"", qos=qos, retain=False)
    peer = clients.join(name)
    peer.subscribe((name, 2))
    peer.expect_nothing()
    retain(clients, name, (name, b"again"))
    late = clients.join(f"{name}-late")
    late.subscribe((name, 2))
    late.receive_publish(name, b"again", retain=True)


@pytest.mark.spec("MQTT-3.3.1-10@3.1.1")
def test_removing_nothing(clients: Clients, name: str) -> None:
    retain(clients, name, (name, b""))
    peer = clients.join(name)
    peer.subscribe(name)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-8")
@pytest.mark.spec("MQTT-3.3.1-12@3.1.1")
@pytest.mark.parametrize("payload", [b"passing", b""])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_0_changes_nothing(clients: Clients, name: str, payload: bytes, qos: int) -> None:
    """Neither stored, nor does it remove or replace, even if it is empty."""
    peer = clients.join(f"{name}-plain")
    peer.publish(f"{name}/none", payload, qos=qos)
    retain(clients, name, (f"{name}/kept", b"kept"))
    peer.publish(f"{name}/kept", payload, qos=qos)
    late = clients.join(name)
    late.subscribe((f"{name}/#", 2))
    late.receive_publish(f"{name}/kept", b"kept", retain=True)
    late.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-7@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ending", ["disconnect", "abort"])
def test_outlives_its_publisher(clients: Clients, name: str, clean: bool, ending: str) -> None:
    """Retained messages are no part of a session."""
    publisher = clients.join(f"{name}-publisher", clean=clean)
    publisher.publish(name, b"kept", qos=1, retain=True)
    getattr(publisher, ending)()
    clients.join(f"{name}-publisher", clean=True).disconnect()
    peer = clients.join(name)
    peer.subscribe(name)
    peer.receive_publish(name, b"kept", retain=True)


@pytest.mark.spec("MQTT-3.3.1-6@3.1.1")
@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.trap(28)
@pytest.mark.parametrize(
    ("topic_filter", "matches"),
    [
        ("{}/#", ["{}", "{}/", "{}/a", "{}/a/b", "{}/a/b/c", "{}/c"]),
        ("{}/+", ["{}/", "{}/a", "{}/c"]),
        ("{}/a/#", ["{}/a", "{}/a/b", "{}/a/b/c"]),
        ("{}/a/+", ["{}/a/b"]),
        ("{}/+/b", ["{}/a/b"]),
        ("{}/+/b/#", ["{}/a/b", "{}/a/b/c"]),
        ("{}/+/+/+", ["{}/a/b/c"]),
        ("{}", ["{}"]),
        ("{}/", ["{}/"]),
        ("$x{}/#", ["$x{}", "$x{}/a"]),
        ("$x{}/+", ["$x{}/a"]),
        ("+/a/b/c", ["{}/a/b/c"]),
    ],
)
def test_matching(clients: Clients, name: str, topic_filter: str, matches: Sequence[str]) -> None:
    """Every retained message whose topic matches, by the rules of live messages."""
    topics = ["{}", "{}/", "{}/a", "{}/a/b", "{}/a/b/c", "{}/c", "$x{}/a", "$x{}"]
    retain(clients, name, *((topic.format(name), topic.encode()) for topic in topics))
    peer = clients.join(name)
    peer.subscribe((topic_filter.format(name), 1))
    got = {}
    for _ in matches:
        found = peer.take(Kind.PUBLISH)
        assert found.retain
        got[found.topic] = found.payload
    assert got == {topic.format(name): topic.encode() for topic in matches}
    peer.expect_nothing()
    retain(clients, name, *((t.format(name), b"") for t in topics))


@pytest.mark.trap(28)
@pytest.mark.spec("MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+/+", "+/#", "+/a"])
def test_wildcard_at_the_front_does_not_get_dollar_topics(
    clients: Clients, name: str, topic_filter: str
) -> None:
    retain(clients, name, (f"$x{name}/a", b"hidden"), (f"{name}/a", b"seen"))
    peer = clients.join(name)
    peer.subscribe((topic_filter, 1))
    peer.subscribe((f"{name}/end", 1))
    peer.publish(f"{name}/end", b"end", qos=1)
    seen = set()
    while (found := peer.take(Kind.PUBLISH)).payload != b"end":
        assert not found.topic.startswith("$")
        peer.acknowledge(found)  # what other cases retain has any QoS
        seen.add(found.topic)
    assert f"{name}/a" in seen
    peer.subscribe((f"$x{name}/a", 0))
    peer.expect_publish(f"$x{name}/a", b"hidden", retain=True)
    retain(clients, name, (f"$x{name}/a", b""), (f"{name}/a", b""))


@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
@pytest.mark.parametrize("times", [1, 3])
def test_resubscribe_sends_it_again(clients: Clients, name: str, times: int) -> None:
    """An identical filter replaces the subscription, and its retained messages are sent again."""
    retain(clients, name, (f"{name}/a", b"1"), (f"{name}/b", b"2"))
    peer = clients.join(name)
    for _ in range(times + 1):
        peer.subscribe((f"{name}/#", 1))
        assert retained_of(peer, 2) == {f"{name}/a": b"1", f"{name}/b": b"2"}
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-6@3.1.1")
def test_each_filter_brings_its_own(clients: Clients, name: str) -> None:
    """Two filters of one SUBSCRIBE, as of two: each gets what matches it."""
    retain(clients, name, (f"{name}/a", b"1"))
    peer = clients.join(name)
    peer.subscribe((f"{name}/a", 1))
    assert retained_of(peer, 1) == {f"{name}/a": b"1"}
    peer.subscribe((f"{name}/#", 1))
    assert retained_of(peer, 1) == {f"{name}/a": b"1"}
    peer.subscribe((f"{name}/b", 1))
    peer.expect_nothing()


@pytest.mark.trap(52)
def test_resume_does_not_send_it_again(clients: Clients, name: str) -> None:
    """A session's subscriptions are not new when it is resumed."""
    retain(clients, name, (f"{name}/a", b"1"))
    peer = clients.durable(name, (f"{name}/#", 1))
    assert retained_of(peer, 1) == {f"{name}/a": b"1"}
    peer.disconnect()
    again = clients.resume(name)
    again.publish(f"{name}/b", b"live", qos=1)
    again.receive_publish(f"{name}/b", b"live", qos=1, retain=False)
    again.expect_nothing()


@pytest.mark.trap(52)
@pytest.mark.parametrize("read", [0, 1, 100, 299])
@pytest.mark.parametrize("ending", ["takeover", "disconnect"])
def test_interrupted_replay_of_retained_goes_on(
    clients: Clients, name: str, read: int, ending: str
) -> None:
    """A session that is taken over amid its retained messages gets each, and each once settled."""
    count = 300
    retain(clients, name, *((f"{name}/{index}", b"%d" % index) for index in range(count)))
    peer = clients.durable(name)
    peer.send(clients.build.subscribe((f"{name}/#", 1), packet_id=1))
    peer.take(Kind.SUBACK, 1)
    settled = set()
    for _ in range(read):
        found = peer.take(Kind.PUBLISH)
        settled.add(found.topic)
        peer.send(clients.build.puback(found.packet_id))
    peer.fence()
    if ending == "disconnect":
        peer.disconnect()
    again = clients.resume(name)
    rest = set()
    while len(rest | settled) < count:
        found = again.take(Kind.PUBLISH)
        assert found.retain
        assert found.topic not in settled
        rest.add(found.topic)
        again.send(clients.build.puback(found.packet_id))
    again.publish(f"{name}/live", b"x", qos=1)
    again.receive_publish(f"{name}/live", b"x", retain=False)
    again.expect_nothing()


@pytest.mark.trap(24)
@pytest.mark.parametrize("qos", [0, 1])
def test_large_replay_is_complete(clients: Clients, name: str, qos: int) -> None:
    """More retained messages than any queue is long by default, to a subscriber that is slow."""
    count = 2500
    retain(clients, name, *((f"{name}/{index}", b"%d" % index) for index in range(count)), qos=qos)
    peer = clients.join(name)
    peer.send(clients.build.subscribe((f"{name}/#", qos), packet_id=1))
    peer.take(Kind.SUBACK, 1)
    assert retained_of(peer, count) == {f"{name}/{i}": b"%d" % i for i in range(count)}
    peer.expect_nothing()


def test_replay_beside_live_messages(clients: Clients, name: str) -> None:
    """Live messages during the replay: none lost, the newer of a topic never before the older."""
    count = 400
    retain(clients, name, *((f"{name}/{index}", b"old") for index in range(count)))
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.send(clients.build.subscribe((f"{name}/#", 1), packet_id=1))
    peer.take(Kind.SUBACK, 1)
    publisher.send(
        b"".join(
            clients.build.publish(f"{name}/{index}", b"new", qos=1, packet_id=index + 1)
            for index in range(count)
        )
    )
    seen: dict[str, list[bytes]] = {f"{name}/{index}": [] for index in range(count)}
    while any(payloads[-1:] != [b"new"] for payloads in seen.values()):
        found = peer.take(Kind.PUBLISH)
        seen[found.topic].append(found.payload)
        peer.send(clients.build.puback(found.packet_id))
    assert all(payloads in ([b"old", b"new"], [b"new"]) for payloads in seen.values())
    publisher.fence()


def test_many_topics_each_keep_their_last(clients: Clients, name: str) -> None:
    """Interleaved updates of many topics."""
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(5):
        publisher.send(
            b"".join(
                clients.build.publish(f"{name}/{index}", payload, retain=True)
                for index in range(50)
            )
        )
    publisher.fence()
    peer = clients.join(name)
    peer.subscribe((f"{name}/+", 0))
    assert retained_of(peer, 50) == {f"{name}/{index}": b"4" for index in range(50)}


@pytest.mark.parametrize("size", [0, 1, 70_000, 1_000_000])
def test_sizes(clients: Clients, name: str, size: int) -> None:
    payload = b"r" * size
    retain(clients, name, (name, payload))
    peer = clients.join(name)
    peer.subscribe((name, 1))
    if size:
        peer.receive_publish(name, payload, retain=True)
    peer.expect_nothing()


def retained_of(peer: Peer, count: int) -> dict[str, bytes]:
    """The next ``count`` retained messages by topic, acknowledged; each topic comes once."""
    got: dict[str, bytes] = {}
    for _ in range(count):
        found = peer.take(Kind.PUBLISH)
        assert found.retain
        assert found.topic not in got
        got[found.topic] = found.payload
        if found.qos == 1:
            peer.send(peer.build.puback(found.packet_id))
    return got
