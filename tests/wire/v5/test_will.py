"""MQTT 5.0: when the will is published, with what, and when not.

Sections 3.1.2.5 to 3.1.2.7, 3.1.3.2 to 3.1.3.4, 3.14.2.1 and 3.14.4.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Prop, Reason, Value, Will, packet, text
from tests.wire.peer import Peer


def watch(broker: Broker, name: str) -> Peer:
    """A client that receives all wills of the case at QoS 2, with their retain flags."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe((f"{name}/#", 2 | 0x08))
    return watcher


def expect_no_will(watcher: Peer, name: str) -> None:
    """A control message comes and nothing before it."""
    watcher.publish(f"{name}/control", b"control", qos=2)
    watcher.receive_publish(f"{name}/control", b"control", qos=2)


@pytest.mark.spec("MQTT-3.1.2-10")
@pytest.mark.spec("MQTT-3.14.4-3")
@pytest.mark.parametrize("reason", [None, 0x00])
@pytest.mark.parametrize("expiry", [0, 60])
def test_no_will_after_a_normal_disconnect(
    broker: Broker, name: str, reason: int | None, expiry: int
) -> None:
    watcher = watch(broker, name)
    peer = broker.connect(name, expiry=expiry, will=Will(topic=f"{name}/w", payload=b"gone"))
    peer.disconnect(reason)
    expect_no_will(watcher, name)


@pytest.mark.spec("MQTT-3.1.2-8")
@pytest.mark.trap(45)
@pytest.mark.parametrize("reason", [0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x95, 0x97, 0x98])
def test_will_after_a_disconnect_with_another_reason(
    broker: Broker, name: str, reason: int
) -> None:
    """3.1.2.5: only reason 0x00 removes the will; 0x04 asks for it."""
    watcher = watch(broker, name)
    peer = broker.connect(name, will=Will(topic=f"{name}/w", payload=b"gone"))
    peer.disconnect(reason)
    watcher.receive_publish(f"{name}/w", b"gone")


@pytest.mark.spec("MQTT-3.14.2-1")
@pytest.mark.spec("MQTT-3.1.2-8")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(packet(0x36, text("t") + b"\0\1\0"), id="malformed"),
        pytest.param(V5.subscribe(), id="protocol-error"),
        pytest.param(V5.connect("again"), id="second-connect"),
        pytest.param(V5.disconnect(0x01), id="disconnect-with-an-undefined-reason"),
        pytest.param(V5.disconnect(0, [(Prop.SESSION_EXPIRY, 9)]), id="disconnect-with-expiry"),
    ],
)
def test_will_after_an_error(broker: Broker, name: str, bad: bytes) -> None:
    """3.1.2.5: the server closes because of a protocol error, so the will is published.

    Mosquitto takes an undefined DISCONNECT reason [MQTT-3.14.2-1] for a normal one.
    """
    watcher = watch(broker, name)
    peer = broker.connect(name, will=Will(topic=f"{name}/w", payload=b"gone"))
    peer.send(bad)
    while peer.receive() is not None:
        pass
    watcher.receive_publish(f"{name}/w", b"gone")


@pytest.mark.trap(43)
@pytest.mark.trap(44)
@pytest.mark.parametrize("clean", [False, True])
def test_delayed_will_on_takeover_of_a_session_of_expiry_0(
    broker: Broker, name: str, clean: bool
) -> None:
    """3.1.3.2.2: the delay ends with the session, and that ends with its connection."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 60)])
    broker.connect(name, will=will)
    broker.connect(name, clean=clean)
    watcher.receive_publish(f"{name}/w", b"gone")
    expect_no_will(watcher, name)


@pytest.mark.trap(44)
def test_delayed_will_on_clean_start(broker: Broker, name: str) -> None:
    """3.1.3.2.2: Clean Start ends the session, which publishes a delayed will at once."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 60)])
    broker.connect(name, expiry=60, will=will).close()
    broker.connect(name, clean=True, expiry=60)
    watcher.receive_publish(f"{name}/w", b"gone")
    expect_no_will(watcher, name)


@pytest.mark.trap(44)
def test_delayed_will_on_takeover_with_clean_start(broker: Broker, name: str) -> None:
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 60)])
    broker.connect(name, expiry=60, will=will)
    broker.connect(name, clean=True, expiry=60)
    watcher.receive_publish(f"{name}/w", b"gone")
    expect_no_will(watcher, name)


@pytest.mark.spec("MQTT-3.1.3-9")
@pytest.mark.trap(44)
@pytest.mark.parametrize("ending", ["close", "takeover"])
def test_delayed_will_is_cancelled_by_a_resume_in_time(
    broker: Broker, name: str, ending: str
) -> None:
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 60)])
    peer = broker.connect(name, expiry=60, will=will)
    if ending == "close":
        peer.close()
    broker.connect(name, clean=False, expiry=60, session_present=True)
    expect_no_will(watcher, name)


@pytest.mark.virtual
@pytest.mark.spec("MQTT-3.1.3-9")
@pytest.mark.trap(44)
def test_cancelled_will_stays_cancelled(broker: Broker, name: str) -> None:
    """The timer of the first connection must not fire for the second."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 1)])
    broker.connect(name, expiry=60, will=will).close()
    broker.connect(name, clean=False, expiry=60, session_present=True)
    broker.elapse(2.2)
    expect_no_will(watcher, name)


@pytest.mark.virtual
@pytest.mark.trap(44)
def test_delayed_will_comes_once_after_its_delay(broker: Broker, name: str) -> None:
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", qos=1, properties=[(Prop.WILL_DELAY, 1)])
    broker.connect(name, expiry=60, will=will).close()
    watcher.expect_nothing()
    watcher.receive_publish(f"{name}/w", b"gone", qos=1, timeout_s=4)
    broker.connect(name, clean=False, expiry=60, session_present=True)
    expect_no_will(watcher, name)


@pytest.mark.virtual
@pytest.mark.trap(43)
def test_session_expiry_ends_a_longer_delay(broker: Broker, name: str) -> None:
    """3.1.3.2.2: delay or end of the session, whichever happens first."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 600)])
    broker.connect(name, expiry=1, will=will).close()
    watcher.receive_publish(f"{name}/w", b"gone", timeout_s=4.5)


@pytest.mark.trap(43)
@pytest.mark.parametrize("ending", ["close", "abort", "with-will"])
def test_delay_without_a_session_is_no_delay(broker: Broker, name: str, ending: str) -> None:
    """3.1.3.2.2 with session expiry 0: the session ends at once, so the will comes at once."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 600)])
    peer = broker.connect(name, will=will)
    if ending == "with-will":
        peer.disconnect(Reason.WITH_WILL)
    else:
        getattr(peer, ending)()
    watcher.receive_publish(f"{name}/w", b"gone")


def test_expiry_0_at_disconnect_ends_the_delay(broker: Broker, name: str) -> None:
    """DISCONNECT 0x04 with session expiry 0: the session ends now, and so does the delay."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 600)])
    peer = broker.connect(name, expiry=600, will=will)
    peer.disconnect(Reason.WITH_WILL, [(Prop.SESSION_EXPIRY, 0)])
    watcher.receive_publish(f"{name}/w", b"gone")


@pytest.mark.spec("MQTT-3.1.2-14")
@pytest.mark.spec("MQTT-3.1.2-15")
@pytest.mark.parametrize("retain", [False, True])
def test_will_retain(broker: Broker, name: str, retain: bool) -> None:
    watcher = watch(broker, name)
    broker.connect(name, will=Will(topic=f"{name}/w", payload=b"gone", retain=retain)).close()
    watcher.receive_publish(f"{name}/w", b"gone", retain=retain)
    late = broker.connect(f"{name}-late")
    late.subscribe(f"{name}/w")
    if retain:
        late.receive_publish(f"{name}/w", b"gone", retain=True)
    late.expect_nothing()
    watcher.publish(f"{name}/w", b"", retain=True)


@pytest.mark.spec("MQTT-3.1.3-10")
def test_will_properties_are_forwarded(broker: Broker, name: str) -> None:
    """3.1.3.2: all but the delay go out with the message, user properties in order."""
    forwarded: list[tuple[int, Value]] = [
        (Prop.PAYLOAD_FORMAT, 1),
        (Prop.CONTENT_TYPE, "text/plain"),
        (Prop.RESPONSE_TOPIC, f"{name}/answer"),
        (Prop.CORRELATION_DATA, b"\x00\xff"),
        (Prop.USER, ("b", "1")),
        (Prop.USER, ("a", "2")),
        (Prop.USER, ("b", "1")),
    ]
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 0), *forwarded])
    broker.connect(name, will=will).close()
    found = watcher.receive_publish(f"{name}/w", b"gone")
    assert sorted(found.properties[:4]) == sorted(forwarded[:4], key=lambda item: item[0])
    assert found.all(Prop.USER) == [("b", "1"), ("a", "2"), ("b", "1")]


@pytest.mark.virtual
def test_will_expiry_counts_from_the_publication(broker: Broker, name: str) -> None:
    """3.1.3.2.4: Message Expiry is sent as the interval when the server publishes the will."""
    watcher = broker.connect(f"{name}-watcher", expiry=60)
    watcher.subscribe((f"{name}/#", 1))
    watcher.disconnect()
    will = Will(
        topic=f"{name}/w",
        payload=b"gone",
        qos=1,
        properties=[(Prop.WILL_DELAY, 1), (Prop.MESSAGE_EXPIRY, 100)],
    )
    broker.connect(name, expiry=60, will=will).close()
    broker.elapse(2.2)
    watcher = broker.connect(f"{name}-watcher", clean=False, expiry=60, session_present=True)
    found = watcher.receive_publish(f"{name}/w", b"gone", qos=1)
    left = found.get(Prop.MESSAGE_EXPIRY)
    assert isinstance(left, int)
    assert 97 <= left <= 100


def test_will_of_311_reaches_50(broker: Broker, name: str) -> None:
    watcher = watch(broker, name)
    broker.connect(name, version=4, will=Will(topic=f"{name}/w", payload=b"old", qos=1)).close()
    found = watcher.receive_publish(f"{name}/w", b"old", qos=1)
    assert found.properties == []


def test_will_reaches_offline_sessions(broker: Broker, name: str) -> None:
    watcher = broker.connect(f"{name}-watcher", expiry=60)
    watcher.subscribe((f"{name}/#", 2))
    watcher.disconnect()
    broker.connect(name, will=Will(topic=f"{name}/w", payload=b"gone", qos=2)).close()
    fence = broker.connect(f"{name}-fence")
    fence.publish(f"{name}/x", b"after", qos=2)
    watcher = broker.connect(f"{name}-watcher", clean=False, expiry=60, session_present=True)
    found = {watcher.take_publish().payload for _ in range(2)}
    assert found == {b"gone", b"after"}


def test_will_does_not_come_back_to_its_own_session(broker: Broker, name: str) -> None:
    """No Local holds for the will too: it is published for the client that set it."""
    will = Will(topic=f"{name}/w", payload=b"gone", qos=1)
    first = broker.connect(name, expiry=60, will=will)
    first.subscribe((f"{name}/w", 1 | 0x04))
    first.close()
    watcher = broker.connect(f"{name}-watcher")
    second = broker.connect(name, clean=False, expiry=60, session_present=True)
    watcher.publish(f"{name}/w", b"control", qos=1)
    second.receive_publish(f"{name}/w", b"control", qos=1)


def test_own_will_is_received_after_the_resume(broker: Broker, name: str) -> None:
    """Without No Local the client's own subscription matches its will like any other."""
    will = Will(topic=f"{name}/w", payload=b"gone", qos=1)
    first = broker.connect(name, expiry=60, will=will)
    first.subscribe((f"{name}/w", 1))
    first.close()
    second = broker.connect(name, clean=False, expiry=60, session_present=True)
    second.receive_publish(f"{name}/w", b"gone", qos=1)


@pytest.mark.trap(44)
def test_each_connection_brings_its_own_will(broker: Broker, name: str) -> None:
    """A CONNECT without will removes that of the connection before."""
    watcher = watch(broker, name)
    will = Will(topic=f"{name}/w", payload=b"gone", properties=[(Prop.WILL_DELAY, 60)])
    broker.connect(name, expiry=60, will=will).close()
    broker.connect(name, clean=False, expiry=60, session_present=True).close()
    expect_no_will(watcher, name)


@pytest.mark.spec("MQTT-4.7.2-1")
def test_will_to_a_topic_with_dollar(broker: Broker, name: str) -> None:
    """[MQTT-4.7.2-1]: `#` does not receive it."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe(("#", 0), (f"$w/{name}", 0))
    broker.connect(name, will=Will(topic=f"$w/{name}", payload=b"gone")).close()
    found = watcher.receive()
    while found is not None and not found.topic.startswith("$"):
        found = watcher.receive()  # wills of clients of the cases before
    assert found is not None
    assert (found.topic, found.payload) == (f"$w/{name}", b"gone")
