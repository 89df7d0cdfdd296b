"""MQTT 5.0, section 4.8.2: shared subscriptions."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason
from tests.wire.peer import Peer


def group(broker: Broker, name: str, count: int, qos: int = 1, expiry: int = 0) -> list[Peer]:
    """Members of the group ``g`` on the topic of the case."""
    peers = [broker.connect(f"{name}-{index}", expiry=expiry) for index in range(count)]
    for peer in peers:
        peer.subscribe((f"$share/g/{name}/t", qos))
    return peers


def collect(peers: list[Peer], *, acknowledge: bool = True) -> dict[bytes, list[int]]:
    """What came so far: payload to the numbers of the members that got it."""
    found: dict[bytes, list[int]] = {}
    for index, peer in enumerate(peers):
        for message in peer.drain():
            found.setdefault(message.payload, []).append(index)
            if acknowledge:
                peer.acknowledge(message)
    return found


def test_groups_and_plain_subscriptions_are_apart(broker: Broker, name: str) -> None:
    """Each group gets each message once, and every plain subscriber too."""
    peers = []
    for index, topic_filter in enumerate(
        [f"$share/a/{name}/t", f"$share/b/{name}/t", f"$share/a/{name}/+", f"{name}/t", f"{name}/#"]
    ):
        peer = broker.connect(f"{name}-{index}")
        peer.subscribe((topic_filter, 1))
        peers.append(peer)
    broker.connect(name).publish(f"{name}/t", b"x", qos=1)
    assert collect(peers) == {b"x": [0, 1, 2, 3, 4]}


def test_shared_and_plain_subscription_of_one_client(broker: Broker, name: str) -> None:
    """4.8.2: a client may have both; the message then comes for each of them."""
    peer = broker.connect(name)
    peer.subscribe((f"$share/g/{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 1)])
    peer.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 2)])
    broker.connect(f"{name}-publisher").publish(f"{name}/t", b"x", qos=1)
    found = peer.drain()
    assert len(found) == 2
    identifiers = sorted(str(i) for message in found for i in message.all(Prop.SUBSCRIPTION_ID))
    assert identifiers == ["1", "2"]


@pytest.mark.trap(41)
@pytest.mark.parametrize("left", ["shared", "plain"])
def test_unsubscribe_ends_the_named_one(broker: Broker, name: str, left: str) -> None:
    """`$share/g/t` and `t` are two subscriptions."""
    peer = broker.connect(name)
    filters = {"shared": f"$share/g/{name}/t", "plain": f"{name}/t"}
    peer.subscribe(*((topic_filter, 1) for topic_filter in filters.values()))
    peer.unsubscribe(*(f for which, f in filters.items() if which != left))
    broker.connect(f"{name}-publisher").publish(f"{name}/t", b"x", qos=1)
    assert len(peer.drain()) == 1


def test_member_that_unsubscribed_gets_nothing_more(broker: Broker, name: str) -> None:
    one, two = group(broker, name, 2)
    one.unsubscribe(f"$share/g/{name}/t")
    publisher = broker.connect(name)
    for index in range(6):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    assert {m for several in collect([one, two]).values() for m in several} == {1}


def test_member_that_left_gets_nothing_more(broker: Broker, name: str) -> None:
    one, two = group(broker, name, 2)
    one.disconnect()
    publisher = broker.connect(name)
    for index in range(6):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    assert len(collect([two])) == 6


def test_unacknowledged_qos1_of_a_member_that_ended(broker: Broker, name: str) -> None:
    """4.8.2: it SHOULD pass to another member when the session ends.

    A session of expiry 0 ends with its connection, so that its share is not lost. Mosquitto
    drops it.
    """
    first = broker.connect(f"{name}-1")
    first.subscribe((f"$share/g/{name}/t", 1))
    broker.connect(name).publish(f"{name}/t", b"x", qos=1)
    first.expect_publish(f"{name}/t", b"x", qos=1)
    second = broker.connect(f"{name}-2")
    second.subscribe((f"$share/g/{name}/t", 1))
    first.abort()
    second.receive_publish(f"{name}/t", b"x", qos=1)


@pytest.mark.spec("MQTT-4.8.2-5")
def test_unacknowledged_qos2_of_a_member_that_ended(broker: Broker, name: str) -> None:
    """It must not be sent to another member: the first one may have taken it already."""
    first = broker.connect(f"{name}-1")
    first.subscribe((f"$share/g/{name}/t", 2))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    first.expect_publish(f"{name}/t", b"x", qos=2)
    second = broker.connect(f"{name}-2")
    second.subscribe((f"$share/g/{name}/t", 2))
    first.close()
    broker.connect(f"{name}-1", clean=False, session_present=False)
    publisher.publish(f"{name}/t", b"control", qos=2)
    second.receive_publish(f"{name}/t", b"control", qos=2)
    second.expect_nothing()


@pytest.mark.spec("MQTT-4.8.2-4")
@pytest.mark.trap(39)
def test_unacknowledged_message_of_a_member_that_may_return(broker: Broker, name: str) -> None:
    """QoS 2 of a session that goes on stays with it: it is completed when the member returns."""
    first = broker.connect(f"{name}-1", expiry=60)
    first.subscribe((f"$share/g/{name}/t", 2))
    broker.connect(name).publish(f"{name}/t", b"x", qos=2)
    packet_id = first.expect_publish(f"{name}/t", b"x", qos=2).packet_id
    second = broker.connect(f"{name}-2")
    second.subscribe((f"$share/g/{name}/t", 2))
    first.abort()
    again = broker.connect(f"{name}-1", clean=False, expiry=60, session_present=True)
    again.receive_publish(f"{name}/t", b"x", qos=2, dup=True, packet_id=packet_id)
    second.expect_nothing()


@pytest.mark.trap(39)
def test_takeover_does_not_pass_messages_on(broker: Broker, name: str) -> None:
    """The session goes on in the new connection, and so do its messages."""
    first = broker.connect(f"{name}-1", expiry=60)
    first.subscribe((f"$share/g/{name}/t", 1))
    broker.connect(name).publish(f"{name}/t", b"x", qos=1)
    packet_id = first.expect_publish(f"{name}/t", b"x", qos=1).packet_id
    second = broker.connect(f"{name}-2")
    second.subscribe((f"$share/g/{name}/t", 1))
    again = broker.connect(f"{name}-1", clean=False, expiry=60, session_present=True)
    again.receive_publish(f"{name}/t", b"x", qos=1, dup=True, packet_id=packet_id)
    second.expect_nothing()


@pytest.mark.virtual
@pytest.mark.trap(39)
def test_expired_member_passes_its_messages_on(broker: Broker, name: str) -> None:
    """Under their own topic, although the filter is a wildcard. Mosquitto drops them."""
    first = broker.connect(f"{name}-1", expiry=1)
    first.subscribe((f"$share/g/{name}/+", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=1)
    first.expect_publish(f"{name}/t", b"x", qos=1)
    second = broker.connect(f"{name}-2")
    second.subscribe((f"$share/g/{name}/+", 1))
    first.abort()
    broker.elapse(2.5)
    second.receive_publish(f"{name}/t", b"x", qos=1)


@pytest.mark.spec("MQTT-4.8.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_negative_acknowledgement_discards_the_message(broker: Broker, name: str, qos: int) -> None:
    """A PUBACK or PUBREC with an error code: not tried with another member."""
    peers = group(broker, name, 2, qos)
    broker.connect(name).publish(f"{name}/t", b"x", qos=qos)
    for peer in peers:
        for message in peer.drain():
            kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
            peer.send(V5.ack(kind, message.packet_id, 0x83))
            peer.fence()
    for peer in peers:
        peer.expect_nothing()


@pytest.mark.trap(36)
def test_qos0_member_of_a_durable_group(broker: Broker, name: str) -> None:
    """More messages than any window: a QoS 0 delivery is complete when it is sent."""
    peer = broker.connect(f"{name}-1", expiry=60, properties=[(Prop.RECEIVE_MAX, 2)])
    peer.subscribe((f"$share/g/{name}/t", 0))
    publisher = broker.connect(name)
    for index in range(30):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
        peer.expect_publish(f"{name}/t", b"%d" % index, qos=0)
    peer.abort()
    again = broker.connect(f"{name}-1", clean=False, expiry=60, session_present=True)
    again.expect_nothing()
    publisher.publish(f"{name}/t", b"on", qos=1)
    again.expect_publish(f"{name}/t", b"on", qos=0)


@pytest.mark.trap(37)
def test_group_goes_on_at_resume(broker: Broker, name: str) -> None:
    """Without a SUBSCRIBE on the new connection."""
    first = broker.connect(f"{name}-1", expiry=60)
    first.subscribe((f"$share/g/{name}/t", 1))
    first.disconnect()
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"offline", qos=1)
    again = broker.connect(f"{name}-1", clean=False, expiry=60, session_present=True)
    again.receive_publish(f"{name}/t", b"offline", qos=1)
    publisher.publish(f"{name}/t", b"live", qos=1)
    again.receive_publish(f"{name}/t", b"live", qos=1)


@pytest.mark.trap(36)
def test_online_members_before_offline_ones(broker: Broker, name: str) -> None:
    """While one member is online nothing waits for an absent one."""
    absent = broker.connect(f"{name}-1", expiry=60)
    absent.subscribe((f"$share/g/{name}/t", 1))
    absent.disconnect()
    present = broker.connect(f"{name}-2")
    present.subscribe((f"$share/g/{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(10):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    for index in range(10):
        present.receive_publish(f"{name}/t", b"%d" % index, qos=1)


@pytest.mark.trap(34)
def test_full_member_does_not_stop_the_group(broker: Broker, name: str) -> None:
    """Its window full, the others go on; once it acknowledges, it takes part again."""
    small = broker.connect(f"{name}-1", properties=[(Prop.RECEIVE_MAX, 1)])
    small.subscribe((f"$share/g/{name}/t", 1))
    large = broker.connect(f"{name}-2")
    large.subscribe((f"$share/g/{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(20):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    found = collect([large])
    held = small.drain()
    assert len(held) <= 1
    for message in held:
        small.acknowledge(message)
        found.setdefault(message.payload, []).append(0)
    while len(found) < 20:
        for index, peer in enumerate([small, large]):
            for message in peer.drain():
                peer.acknowledge(message)
                found.setdefault(message.payload, []).append(index)
    assert all(len(receivers) == 1 for receivers in found.values())
    publisher.publish(f"{name}/t", b"more", qos=1)
    publisher.publish(f"{name}/t", b"yet more", qos=1)
    assert sum(len(r) for r in collect([small, large]).values()) == 2


def test_subscription_identifier_of_a_share(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"$share/g/{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 12)])
    peer.publish(f"{name}/t", b"x", qos=1)
    found = peer.receive_publish(f"{name}/t", b"x", qos=1)
    assert found.all(Prop.SUBSCRIPTION_ID) == [12]


def test_each_member_has_its_own_qos(broker: Broker, name: str) -> None:
    """4.8.2: subscriptions of a group may differ in QoS."""
    zero = broker.connect(f"{name}-0")
    zero.subscribe((f"$share/g/{name}/t", 0))
    two = broker.connect(f"{name}-2")
    two.subscribe((f"$share/g/{name}/t", 2))
    publisher = broker.connect(name)
    for index in range(10):
        publisher.publish(f"{name}/t", b"%d" % index, qos=2)
    got_zero, got_two = zero.drain(), two.drain()
    assert {message.qos for message in got_zero} <= {0}
    assert {message.qos for message in got_two} <= {2}
    assert len(got_zero) + len(got_two) == 10


@pytest.mark.spec("MQTT-4.8.2-1")
@pytest.mark.spec("MQTT-4.8.2-2")
@pytest.mark.parametrize(
    "topic_filter",
    [
        "$share/",
        "$share//t",
        "$share/g",
        "$share/g/",
        "$share/+/t",
        "$share/#/t",
        "$share/g+/t",
        "$share/#",
        "$share/g/#/t",
        "$share/g/t#",
    ],
)
def test_malformed_share(broker: Broker, name: str, topic_filter: str) -> None:
    """SUBACK 0x8F or DISCONNECT; never a grant."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((topic_filter, 0)))
    found = peer.receive()
    if found is not None and found.kind is Kind.SUBACK:
        assert found.reasons == (Reason.FILTER_INVALID,)
    elif found is not None:
        assert found.kind is Kind.DISCONNECT
        codes = (Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.FILTER_INVALID)
        assert found.reason in codes


@pytest.mark.parametrize("share", ["g", "G", "$share", "ü", "with space", "1" * 100])
def test_share_names(broker: Broker, name: str, share: str) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"$share/{share}/{name}/t", 1))
    peer.publish(f"{name}/t", b"x", qos=1)
    peer.receive_publish(f"{name}/t", b"x", qos=1)
    peer.unsubscribe(f"$share/{share}/{name}/t")


@pytest.mark.parametrize("rest", ["/", "/{}", "{}//", "{}/+/#", "$d/{}"])
def test_filters_inside_a_share(broker: Broker, name: str, rest: str) -> None:
    """What follows the share name is any topic filter, empty levels and `$` included."""
    peer = broker.connect(name)
    peer.subscribe((f"$share/{name}/{rest.format(name)}", 1))
    topic = rest.format(name).replace("+", "x").replace("#", "y/z")
    peer.publish(topic, b"x", qos=1)
    peer.receive_publish(topic, b"x", qos=1)


@pytest.mark.spec("MQTT-3.8.3-4")
def test_no_local_on_a_share(broker: Broker, name: str) -> None:
    """A protocol error; Mosquitto accepts it."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((f"$share/g/{name}/t", 1 | 0x04)))
    peer.expect_refusal(Reason.PROTOCOL_ERROR)


def test_shared_subscriptions_across_versions(broker: Broker, name: str) -> None:
    """A 3.1.1 client may be a member; both kinds get their part whole."""
    old = broker.connect(f"{name}-1", version=4)
    old.subscribe((f"$share/g/{name}/t", 1))
    new = broker.connect(f"{name}-2")
    new.subscribe((f"$share/g/{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(10):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    assert len(collect([old, new])) == 10


def test_topic_share_without_dollar_is_a_topic(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"share/g/{name}", 0))
    peer.publish(f"share/g/{name}", b"x")
    peer.receive_publish(f"share/g/{name}", b"x")
