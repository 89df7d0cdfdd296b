"""MQTT 5.0: what a session keeps, how long, and what Session Present says.

Sections 3.1.2.4 (Clean Start), 3.1.2.11.2 (Session Expiry), 3.2.2.1.1, 3.14.2.2.2, 4.1.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Will

NEVER = 0xFFFFFFFF


@pytest.mark.spec("MQTT-3.1.2-5")
@pytest.mark.spec("MQTT-3.1.2-23")
@pytest.mark.spec("MQTT-3.2.2-3")
@pytest.mark.parametrize("expiry", [30, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, NEVER])
@pytest.mark.trap(47)
def test_resume(broker: Broker, name: str, expiry: int) -> None:
    """The largest intervals must not overflow into the past."""
    first = broker.connect(name, expiry=expiry)
    first.subscribe(f"{name}/t")
    first.disconnect()
    second = broker.connect(name, clean=False, expiry=expiry, session_present=True)
    second.publish(f"{name}/t", b"still subscribed", qos=1)
    second.receive_publish(f"{name}/t", b"still subscribed", qos=1)


@pytest.mark.parametrize("expiry", [None, 0])
@pytest.mark.parametrize("ending", ["disconnect", "close", "abort"])
def test_session_that_ends_with_its_connection(
    broker: Broker, name: str, expiry: int | None, ending: str
) -> None:
    """3.1.2.11.2: absent or 0 means that the session ends when the connection is closed."""
    first = broker.connect(name, expiry=expiry)
    first.subscribe(f"{name}/t")
    getattr(first, ending)()
    second = broker.connect(name, clean=False, session_present=False)
    second.publish(f"{name}/t", b"x", qos=1)
    second.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-4")
@pytest.mark.spec("MQTT-3.1.4-4")
@pytest.mark.trap(46)
def test_clean_start_discards_the_session(broker: Broker, name: str) -> None:
    """Subscriptions, pending messages and unacknowledged ones all go."""
    publisher = broker.connect(f"{name}-publisher")
    first = broker.connect(name, expiry=60)
    first.subscribe(f"{name}/t")
    publisher.publish(f"{name}/t", b"unacknowledged", qos=1)
    first.expect_publish(f"{name}/t", b"unacknowledged", qos=1)
    first.disconnect()
    publisher.publish(f"{name}/t", b"pending", qos=1)
    second = broker.connect(name, clean=True, expiry=60, session_present=False)
    second.expect_nothing()
    publisher.publish(f"{name}/t", b"not subscribed", qos=1)
    second.expect_nothing()
    second.disconnect()
    third = broker.connect(name, clean=False, session_present=True)
    third.expect_nothing()


@pytest.mark.trap(46)
def test_clean_start_discards_a_session_for_good(broker: Broker, name: str) -> None:
    """With expiry 0 after it, nothing of the old session may come back."""
    first = broker.connect(name, expiry=NEVER)
    first.subscribe(f"{name}/t")
    first.disconnect()
    broker.connect(name, clean=True, session_present=False).disconnect()
    broker.connect(name, clean=False, session_present=False)


@pytest.mark.trap(43)
def test_taken_over_session_of_expiry_0_ends(broker: Broker, name: str) -> None:
    """3.1.4: the old connection is closed first, and with it ends a session of expiry 0."""
    first = broker.connect(name)
    first.subscribe(f"{name}/t")
    second = broker.connect(name, clean=False, session_present=False)
    first.expect_refusal(Reason.TAKEN_OVER)
    second.publish(f"{name}/t", b"x", qos=1)
    second.expect_nothing()


@pytest.mark.spec("MQTT-4.1.0-2")
@pytest.mark.virtual
def test_session_expires(broker: Broker, name: str) -> None:
    """3.1.2.11.2: after the interval the session is gone."""
    first = broker.connect(name, expiry=1)
    first.subscribe(f"{name}/t")
    first.disconnect()
    broker.elapse(2.5)
    broker.connect(name, clean=False, session_present=False)


@pytest.mark.virtual
def test_session_does_not_expire_while_connected(broker: Broker, name: str) -> None:
    """The interval begins when the connection is closed."""
    first = broker.connect(name, expiry=1)
    broker.elapse(2.2)
    first.expect_nothing()
    first.disconnect()
    broker.connect(name, clean=False, session_present=True)


@pytest.mark.virtual
@pytest.mark.trap(46)
def test_expiry_does_not_reap_a_session_that_came_back(broker: Broker, name: str) -> None:
    """An expiry armed at the first disconnect must not end the resumed session."""
    first = broker.connect(name, expiry=1)
    first.subscribe(f"{name}/t")
    first.disconnect()
    second = broker.connect(name, clean=False, expiry=1, session_present=True)
    broker.elapse(2.2)
    second.publish(f"{name}/t", b"alive", qos=1)
    second.receive_publish(f"{name}/t", b"alive", qos=1)


@pytest.mark.parametrize("expiry", [0, 1, 60, NEVER])
def test_expiry_of_the_last_connect_counts(broker: Broker, name: str, expiry: int) -> None:
    """3.1.2.11.2: each CONNECT sets the interval anew; absent means 0."""
    broker.connect(name, expiry=expiry or 60).disconnect()
    broker.connect(name, clean=False, session_present=True).disconnect()
    broker.connect(name, clean=False, session_present=False)


@pytest.mark.trap(47)
@pytest.mark.parametrize("later", [1000, NEVER])
def test_expiry_grows_at_disconnect(broker: Broker, name: str, later: int) -> None:
    """3.14.2.2.2: DISCONNECT may change the interval."""
    first = broker.connect(name, expiry=1)
    first.disconnect(0, [(Prop.SESSION_EXPIRY, later)])
    broker.connect(name, clean=False, session_present=True)


@pytest.mark.virtual
@pytest.mark.trap(47)
def test_expiry_grown_at_disconnect_outlives_the_first(broker: Broker, name: str) -> None:
    first = broker.connect(name, expiry=1)
    first.disconnect(0, [(Prop.SESSION_EXPIRY, 60)])
    broker.elapse(2.5)
    broker.connect(name, clean=False, session_present=True)


@pytest.mark.virtual
@pytest.mark.trap(47)
def test_expiry_shrinks_at_disconnect(broker: Broker, name: str) -> None:
    first = broker.connect(name, expiry=60)
    first.disconnect(0, [(Prop.SESSION_EXPIRY, 1)])
    broker.elapse(2.5)
    broker.connect(name, clean=False, session_present=False)


@pytest.mark.trap(47)
def test_expiry_0_at_disconnect_ends_the_session(broker: Broker, name: str) -> None:
    first = broker.connect(name, expiry=60)
    first.subscribe(f"{name}/t")
    first.disconnect(0, [(Prop.SESSION_EXPIRY, 0)])
    broker.connect(name, clean=False, session_present=False)


@pytest.mark.parametrize("reason", [0x04, 0x80, 0x82, 0x93, 0x98])
def test_expiry_at_disconnect_with_another_reason(broker: Broker, name: str, reason: int) -> None:
    """3.14.2.2.2 does not depend on the reason code."""
    first = broker.connect(name, expiry=60)
    first.disconnect(reason, [(Prop.SESSION_EXPIRY, 0)])
    broker.connect(name, clean=False, session_present=False)


def test_refused_expiry_at_disconnect_makes_no_session(broker: Broker, name: str) -> None:
    """3.14.2.2.2: 0 in CONNECT and then non-zero is a protocol error, not a durable session."""
    first = broker.connect(name, expiry=0)
    first.send(V5.disconnect(0, [(Prop.SESSION_EXPIRY, 60)]))
    first.expect_refusal(Reason.PROTOCOL_ERROR)
    broker.connect(name, clean=False, session_present=False)


def test_connack_echoes_no_other_expiry(broker: Broker, name: str) -> None:
    """3.2.2.3.2: Session Expiry in CONNACK only if the server uses another value than asked."""
    connack = broker.connect(name, expiry=77).connack
    assert connack.get(Prop.SESSION_EXPIRY) in (None, 77)


def test_session_of_both_versions(broker: Broker, name: str) -> None:
    """A client may come back with the other version: its session is one and the same."""
    first = broker.connect(name, expiry=60)
    first.subscribe(f"{name}/t")
    first.disconnect()
    second = broker.connect(name, version=4, clean=False, session_present=True)
    second.publish(f"{name}/t", b"from 3.1.1", qos=1)
    second.receive_publish(f"{name}/t", b"from 3.1.1", qos=1)
    second.disconnect()
    third = broker.connect(name, clean=False, expiry=60, session_present=True)
    third.publish(f"{name}/t", b"from 5.0", qos=2)
    third.receive_publish(f"{name}/t", b"from 5.0", qos=2)


def test_subscription_options_are_kept(broker: Broker, name: str) -> None:
    """4.1: the subscriptions of the state include their identifiers and options."""
    first = broker.connect(name, expiry=60)
    first.subscribe((f"{name}/t", 1 | 0x04 | 0x08), properties=[(Prop.SUBSCRIPTION_ID, 4321)])
    first.disconnect()
    second = broker.connect(name, clean=False, expiry=60, session_present=True)
    second.publish(f"{name}/t", b"own: no local", qos=1)
    second.expect_nothing()
    other = broker.connect(f"{name}-other")
    other.publish(f"{name}/t", b"retained", qos=2, retain=True)
    found = second.receive_publish(f"{name}/t", b"retained", qos=1, retain=True)
    assert found.all(Prop.SUBSCRIPTION_ID) == [4321]


@pytest.mark.spec("MQTT-4.1.0-1")
@pytest.mark.spec("MQTT-3.1.2-23")
def test_inbound_qos2_is_kept(broker: Broker, name: str) -> None:
    """4.1: identifiers of QoS 2 messages received and not completed belong to the state."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe(f"{name}/t")
    first = broker.connect(name, expiry=60)
    first.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=11))
    first.expect_packet(Kind.PUBREC, packet_id=11, reason=0)
    first.abort()
    second = broker.connect(name, clean=False, expiry=60, session_present=True)
    second.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=11, dup=True))
    second.expect_packet(Kind.PUBREC, packet_id=11, reason=0)
    second.send(V5.pubrel(11))
    second.expect_packet(Kind.PUBCOMP, packet_id=11, reason=0)
    watcher.receive_publish(f"{name}/t", b"once", qos=2)
    second.publish(f"{name}/t", b"control", qos=2)
    watcher.receive_publish(f"{name}/t", b"control", qos=2)


def test_inbound_qos2_of_an_ended_session_is_forgotten(broker: Broker, name: str) -> None:
    """A new session knows no identifiers: 3.7.2.1 names 0x92; Mosquitto answers 0x00."""
    first = broker.connect(name)
    first.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=11))
    first.expect_packet(Kind.PUBREC, packet_id=11)
    first.close()
    second = broker.connect(name, clean=False, session_present=False)
    second.send(V5.pubrel(11))
    second.expect_packet(Kind.PUBCOMP, packet_id=11, reason=Reason.PACKET_ID_NOT_FOUND)


@pytest.mark.trap(49)
def test_similar_client_ids_are_different_sessions(broker: Broker, name: str) -> None:
    """Case, Unicode normal form and trailing spaces make different identifiers."""
    for client_id in (f"{name}-É", f"{name}-E\u0301", f"{name}-é", f"{name}-É "):
        broker.connect(client_id, clean=False, expiry=60, session_present=False).disconnect()


@pytest.mark.parametrize("reason", [None, 0x00, 0x04, 0x81, 0x82, 0x83, 0x90, 0x93, 0x95, 0x99])
def test_disconnect_reasons_end_the_connection(
    broker: Broker, name: str, reason: int | None
) -> None:
    """3.14.2.1: every code that a client may send; the session stays for its interval."""
    first = broker.connect(name, expiry=60)
    first.disconnect(reason)
    broker.connect(name, clean=False, session_present=True)


def test_session_without_subscriptions_is_a_session(broker: Broker, name: str) -> None:
    """3.2.2.1.1: Session Present speaks of the state, not of what is in it."""
    broker.connect(name, expiry=60).disconnect()
    broker.connect(name, clean=False, session_present=True)


@pytest.mark.spec("MQTT-3.1.2-10")
def test_will_is_no_longer_part_of_the_state_after_disconnect(broker: Broker, name: str) -> None:
    """[MQTT-3.1.2-10]: DISCONNECT 0x00 removes it; a later break publishes the new one only."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe(f"{name}/#")
    broker.connect(name, expiry=60, will=Will(topic=f"{name}/old", payload=b"old")).disconnect()
    second = broker.connect(
        name, clean=False, expiry=0, will=Will(topic=f"{name}/new", payload=b"new")
    )
    second.close()
    watcher.receive_publish(f"{name}/new", b"new")
    watcher.expect_nothing()
