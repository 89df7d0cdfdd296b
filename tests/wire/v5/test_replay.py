"""Perdure's own: asking for the past with `replay-from`, or with `$replay/<from>/<filter>`.

MQTT 5.0 leaves User Properties to the application; a broker that does not know this one, such
as Mosquitto, makes a plain subscription of it.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason, Value
from tests.wire.peer import SUBJECT, Peer

pytestmark = pytest.mark.skipif(SUBJECT != "perdure", reason="an extension of Perdure")
BROKER_OPTIONS = Options(settings={"session.feed_chunk": "7"})  # so that a replay has many pages


def replay(peer: Peer, topic_filter: str, start: str, qos: int = 1, *, own: bool = False) -> None:
    """Subscribes from a time; ``own`` puts it into the filter."""
    if own:
        peer.subscribe((f"$replay/{start}/{topic_filter}", qos))
    else:
        peer.subscribe((topic_filter, qos), properties=[(Prop.USER, ("replay-from", start))])


ways = pytest.mark.parametrize("own", [False, True], ids=["property", "filter"])


@pytest.mark.parametrize(("version", "own"), [(4, True), (5, True), (5, False)])
@pytest.mark.parametrize("count", [1, 6, 7, 8, 50])
def test_everything_from_the_beginning(
    broker: Broker, name: str, count: int, version: int, own: bool
) -> None:
    """In order, then the live messages, without a gap or a repeat."""
    publisher = broker.connect(f"{name}-publisher")
    for index in range(count):
        publisher.publish(f"{name}/{index % 3}", b"%d" % index, qos=1)
    peer = broker.connect(name, version=version)
    replay(peer, f"{name}/+", "0", own=own)
    for index in range(count):
        peer.receive_publish(f"{name}/{index % 3}", b"%d" % index, qos=1, retain=False)
    publisher.publish(f"{name}/0", b"live", qos=1)
    peer.receive_publish(f"{name}/0", b"live", qos=1)
    peer.expect_nothing()


@ways
@pytest.mark.trap(25)
def test_from_a_time(broker: Broker, name: str, own: bool) -> None:
    """Only what was published at that time or later."""
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"before", qos=1)
    moment = broker.now_us()
    publisher.publish(f"{name}/t", b"after", qos=1)
    peer = broker.connect(name)
    replay(peer, f"{name}/t", str(moment), own=own)
    peer.receive_publish(f"{name}/t", b"after", qos=1)
    peer.expect_nothing()


@pytest.mark.parametrize(
    ("form", "own"),
    [
        ("%Y-%m-%dT%H:%M:%S.%fZ", False),
        ("%Y-%m-%dT%H:%M:%S.%fZ", True),
        ("%Y-%m-%dT%H:%M:%S.%f+00:00", False),  # a filter cannot hold a `+` there
        ("%Y-%m-%d %H:%M:%S.%f-00:00", False),
    ],
)
def test_from_a_date(broker: Broker, name: str, own: bool, form: str) -> None:
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"before", qos=1)
    moment = datetime.fromtimestamp(broker.now_us() / 1_000_000, UTC).strftime(form)
    publisher.publish(f"{name}/t", b"after", qos=1)
    peer = broker.connect(name)
    replay(peer, f"{name}/t", moment, own=own)
    peer.receive_publish(f"{name}/t", b"after", qos=1)
    peer.expect_nothing()


@ways
@pytest.mark.parametrize(
    "start", ["", "yesterday", "-1", "1.5", "2026-11-20T08:00:00", "99999999999999999999", "+1"]
)
def test_from_what_is_no_time(broker: Broker, name: str, own: bool, start: str) -> None:
    """SUBACK 0x8F for that filter, or the packet's refusal; never a plain subscription."""
    peer = broker.connect(name)
    if own:
        peer.send(V5.subscribe((f"$replay/{start}/{name}/t", 1), packet_id=5))
    else:
        properties = [(Prop.USER, ("replay-from", start))]
        peer.send(V5.subscribe((f"{name}/t", 1), packet_id=5, properties=properties))
    found = peer.receive()
    assert found is not None
    if found.kind is Kind.SUBACK:
        assert found.reasons == (Reason.FILTER_INVALID,)
    else:
        assert found.kind is Kind.DISCONNECT


@ways
def test_from_the_future(broker: Broker, name: str, own: bool) -> None:
    """Nothing of the past, and the live messages come."""
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"before", qos=1)
    peer = broker.connect(name)
    replay(peer, f"{name}/t", str(broker.now_us() + 3_600_000_000), own=own)
    publisher.publish(f"{name}/t", b"live", qos=1)
    peer.receive_publish(f"{name}/t", b"live", qos=1)
    peer.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_qos_of_a_replay(broker: Broker, name: str, qos: int) -> None:
    """The lower one of both, as always."""
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"1", qos=1)
    publisher.publish(f"{name}/t", b"2", qos=2)
    peer = broker.connect(name)
    replay(peer, f"{name}/t", "0", qos)
    peer.receive_publish(f"{name}/t", b"1", qos=min(qos, 1))
    peer.receive_publish(f"{name}/t", b"2", qos=qos)


def test_window_bounds_a_replay(broker: Broker, name: str) -> None:
    publisher = broker.connect(f"{name}-publisher")
    for index in range(30):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    peer = broker.connect(name, properties=[(Prop.RECEIVE_MAX, 3)])
    replay(peer, f"{name}/t", "0")
    first = [peer.expect_publish(f"{name}/t", b"%d" % index) for index in range(3)]
    peer.expect_nothing()
    peer.send(*(V5.puback(message.packet_id) for message in first))
    for index in range(3, 30):
        peer.receive_publish(f"{name}/t", b"%d" % index, qos=1)


@pytest.mark.trap(33)
def test_publishing_goes_on_during_a_replay(broker: Broker, name: str) -> None:
    """The join of both is invisible: one ascending sequence."""
    publisher = broker.connect(f"{name}-publisher")
    for index in range(60):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    peer = broker.connect(name, properties=[(Prop.RECEIVE_MAX, 4)])
    replay(peer, f"{name}/t", "0")
    for index in range(120):
        if index < 60:
            publisher.publish(f"{name}/t", b"%d" % (60 + index), qos=1)
        peer.receive_publish(f"{name}/t", b"%d" % index, qos=1)
    peer.expect_nothing()


@pytest.mark.parametrize("how", ["abort", "kill"])
def test_replay_goes_on_after_a_break(broker: Broker, name: str, how: str) -> None:
    """A durable session's replay is part of it: it resumes where it stood, nothing is missing."""
    publisher = broker.connect(f"{name}-publisher")
    for index in range(40):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    first = broker.connect(name, expiry=600, properties=[(Prop.RECEIVE_MAX, 5)])
    replay(first, f"{name}/t", "0")
    for index in range(10):
        first.receive_publish(f"{name}/t", b"%d" % index, qos=1)
    first.fence()
    first.abort()
    if how == "kill":
        broker.connect("").publish("settle", b"", qos=1)  # the acknowledgements are on disk
        broker.kill9()
    again = broker.connect(name, clean=False, expiry=600, session_present=True)
    for index in range(10, 40):
        again.receive_publish(f"{name}/t", b"%d" % index, qos=1)
    again.expect_nothing()


def test_replay_of_an_existing_subscription(broker: Broker, name: str) -> None:
    """Asking again sends the past again, and the subscription stays one."""
    peer = broker.connect(name, expiry=60)
    peer.subscribe((f"{name}/t", 1))
    peer.publish(f"{name}/t", b"1", qos=1)
    peer.receive_publish(f"{name}/t", b"1", qos=1)
    replay(peer, f"{name}/t", "0")
    peer.receive_publish(f"{name}/t", b"1", qos=1, dup=False)
    peer.publish(f"{name}/t", b"2", qos=1)
    peer.receive_publish(f"{name}/t", b"2", qos=1)
    peer.expect_nothing()


@pytest.mark.parametrize("sent", ["$replay/0/{}/t", "{}/t"])
def test_unsubscribe_from_a_replay(broker: Broker, name: str, sent: str) -> None:
    """By the filter that was sent, or by the plain one."""
    peer = broker.connect(name)
    replay(peer, f"{name}/t", "0", own=True)
    peer.unsubscribe(sent.format(name))
    broker.connect("").publish(f"{name}/t", b"x", qos=1)
    peer.expect_nothing()


def test_qos0_is_not_recorded(broker: Broker, name: str) -> None:
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"zero", qos=0)
    publisher.publish(f"{name}/t", b"one", qos=1)
    peer = broker.connect(name)
    replay(peer, f"{name}/t", "0")
    peer.receive_publish(f"{name}/t", b"one", qos=1)
    peer.expect_nothing()


def test_replay_sends_no_retained_copy(broker: Broker, name: str) -> None:
    """The retained message is in the log already: it comes once."""
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"kept", qos=1, retain=True)
    peer = broker.connect(name)
    replay(peer, f"{name}/t", "0")
    peer.receive_publish(f"{name}/t", b"kept", qos=1)
    peer.expect_nothing()
    publisher.publish(f"{name}/t", b"", retain=True)


def test_replayed_messages_keep_their_properties(broker: Broker, name: str) -> None:
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(
        f"{name}/t", b"x", qos=1, properties=[(Prop.USER, ("k", "v")), (Prop.CONTENT_TYPE, "c")]
    )
    peer = broker.connect(name)
    properties: list[tuple[int, Value]] = [
        (Prop.USER, ("replay-from", "0")),
        (Prop.SUBSCRIPTION_ID, 9),
    ]
    peer.subscribe((f"{name}/t", 1), properties=properties)
    found = peer.receive_publish(f"{name}/t", b"x", qos=1)
    assert found.all(Prop.USER) == [("k", "v")]
    assert found.get(Prop.CONTENT_TYPE) == "c"
    assert found.all(Prop.SUBSCRIPTION_ID) == [9]


def test_replay_and_no_local(broker: Broker, name: str) -> None:
    """Own messages of the past are own messages."""
    peer = broker.connect(name)
    peer.publish(f"{name}/t", b"own", qos=1)
    broker.connect(f"{name}-publisher").publish(f"{name}/t", b"other", qos=1)
    peer.subscribe((f"{name}/t", 1 | 0x04), properties=[(Prop.USER, ("replay-from", "0"))])
    peer.receive_publish(f"{name}/t", b"other", qos=1)
    peer.expect_nothing()
