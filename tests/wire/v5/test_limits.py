"""MQTT 5.0: a broker that offers less says so in CONNACK and refuses by the named codes.

Sections 3.2.2.3.4 to 3.2.2.3.13, 3.9.3. Mosquitto has settings for two of these limits only.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason, Will

BROKER_OPTIONS = Options(
    settings={
        "mqtt.maximum_qos": "1",
        "mqtt.retain_available": "false",
        "mqtt.wildcard_subscription_available": "false",
        "mqtt.shared_subscription_available": "false",
        "mqtt.subscription_identifier_available": "false",
        "mqtt.topic_alias_maximum": "0",
        "mqtt.topic_levels_max": "5",
        "mqtt.client_id_bytes_max": "30",
        "mqtt.allow_empty_client_id": "false",
        "mqtt.response_information": "answers/%c",
        "session.expiry_max_s": "100",
        "session.subscriptions_max": "3",
    },
    mosquitto=("max_qos 1", "retain_available false"),
)


def test_connack_states_the_limits(broker: Broker, name: str) -> None:
    connack = broker.connect(name, expiry=1000).connack
    assert connack.get(Prop.MAX_QOS) == 1
    assert connack.get(Prop.RETAIN_AVAILABLE) == 0
    assert connack.get(Prop.WILDCARD_AVAILABLE) == 0
    assert connack.get(Prop.SHARED_AVAILABLE) == 0
    assert connack.get(Prop.SUBSCRIPTION_ID_AVAILABLE) == 0
    assert connack.get(Prop.TOPIC_ALIAS_MAX) in (None, 0)
    assert connack.get(Prop.SESSION_EXPIRY) == 100


@pytest.mark.parametrize(("asked", "stated"), [(0, None), (99, None), (100, None), (101, 100)])
def test_session_expiry_is_cut(broker: Broker, name: str, asked: int, stated: int | None) -> None:
    """3.2.2.3.2: the server's value is stated if it differs from the client's."""
    connack = broker.connect(name, expiry=asked).connack
    assert connack.get(Prop.SESSION_EXPIRY) == stated


@pytest.mark.spec("MQTT-3.2.2-11")
def test_publish_above_the_maximum_qos(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/t", b"x", qos=2))
    peer.expect_refusal(Reason.QOS_NOT_SUPPORTED)


@pytest.mark.spec("MQTT-3.2.2-12")
def test_will_above_the_maximum_qos(broker: Broker, name: str) -> None:
    peer = broker.peer()
    peer.send(V5.connect(name, will=Will(topic="w", qos=2)))
    peer.expect_refused_connect(Reason.QOS_NOT_SUPPORTED)


@pytest.mark.spec("MQTT-3.2.2-9")
@pytest.mark.spec("MQTT-3.2.2-10")
def test_subscription_above_the_maximum_qos(broker: Broker, name: str) -> None:
    """3.2.2.3.4: it is accepted, with a lower grant."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 2), codes=(1,))
    peer.publish(f"{name}/t", b"x", qos=1)
    peer.receive_publish(f"{name}/t", b"x", qos=1)


@pytest.mark.spec("MQTT-3.2.2-13")
@pytest.mark.parametrize("payload", [b"x", b""])
def test_retained_publish(broker: Broker, name: str, payload: bytes) -> None:
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/t", payload, qos=1, retain=True))
    peer.expect_refusal(Reason.RETAIN_NOT_SUPPORTED)


@pytest.mark.spec("MQTT-3.2.2-13")
def test_retained_will(broker: Broker, name: str) -> None:
    peer = broker.peer()
    peer.send(V5.connect(name, will=Will(topic="w", retain=True)))
    peer.expect_refused_connect(Reason.RETAIN_NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("topic_filter", "code"),
    [
        pytest.param("{}/+", Reason.WILDCARD_NOT_SUPPORTED, id="plus"),
        pytest.param("{}/#", Reason.WILDCARD_NOT_SUPPORTED, id="hash"),
        pytest.param("$share/g/{}", Reason.SHARED_NOT_SUPPORTED, id="shared"),
        pytest.param("{}/1/2/3/4/5", Reason.FILTER_INVALID, id="too-many-levels"),
    ],
)
def test_filter_that_is_not_supported(
    broker: Broker, name: str, topic_filter: str, code: int
) -> None:
    """3.9.3: SUBACK with the code of its own; the connection goes on."""
    peer = broker.connect(name)
    peer.subscribe((topic_filter.format(name), 0), codes=(code,))
    peer.expect_nothing()


def test_subscription_identifier_that_is_not_supported(broker: Broker, name: str) -> None:
    """3.2.2.3.12: DISCONNECT 0xA1 (a property of the packet, not of a filter)."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((f"{name}/t", 0), properties=[(Prop.SUBSCRIPTION_ID, 1)]))
    found = peer.receive()
    assert found is not None
    if found.kind is Kind.SUBACK:
        assert found.reasons == (Reason.SUBSCRIPTION_ID_NOT_SUPPORTED,)
    else:
        assert found.kind is Kind.DISCONNECT
        assert found.reason == Reason.SUBSCRIPTION_ID_NOT_SUPPORTED


@pytest.mark.spec("MQTT-3.2.2-17")
@pytest.mark.parametrize("alias", [1, 10])
def test_topic_alias_that_is_not_supported(broker: Broker, name: str, alias: int) -> None:
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/t", b"x", properties=[(Prop.TOPIC_ALIAS, alias)]))
    peer.expect_refusal(Reason.TOPIC_ALIAS_INVALID)


@pytest.mark.parametrize("qos", [0, 1])
def test_topic_of_too_many_levels(broker: Broker, name: str, qos: int) -> None:
    """3.4.2.1, 3.14.2.1: 0x90, the topic name is well-formed and not accepted."""
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/1/2/3/4/5", b"x", qos=qos, packet_id=9 if qos else None))
    found = peer.receive()
    assert found is not None
    assert found.kind in ((Kind.PUBACK, Kind.DISCONNECT) if qos else (Kind.DISCONNECT,))
    assert found.reason == Reason.TOPIC_INVALID


@pytest.mark.spec("MQTT-3.1.3-8")
@pytest.mark.parametrize("client_id", ["", "x" * 31])
@pytest.mark.parametrize("clean", [False, True])
def test_client_id_that_is_not_accepted(broker: Broker, client_id: str, clean: bool) -> None:
    peer = broker.peer()
    peer.send(V5.connect(client_id, clean=clean))
    peer.expect_refused_connect(Reason.CLIENT_ID_INVALID)


def test_too_many_subscriptions(broker: Broker, name: str) -> None:
    """3.9.3: 0x97; replacing one of those that exist is no new one."""
    peer = broker.connect(name)
    peer.subscribe(*((f"{name}/{index}", 0) for index in range(3)))
    peer.subscribe((f"{name}/3", 0), codes=(Reason.QUOTA_EXCEEDED,))
    peer.subscribe((f"{name}/1", 1))
    peer.unsubscribe(f"{name}/0")
    peer.subscribe((f"{name}/3", 0))


@pytest.mark.spec("MQTT-3.1.2-28")
@pytest.mark.parametrize("asked", [None, 0, 1])
def test_response_information(broker: Broker, name: str, asked: int | None) -> None:
    """3.2.2.3.15: only for a client that asked for it."""
    properties = [] if asked is None else [(Prop.REQUEST_RESPONSE_INFO, asked)]
    connack = broker.connect(name, properties=properties).connack
    wanted = f"answers/{name}" if asked else None
    assert connack.get(Prop.RESPONSE_INFO) == wanted


def test_expiry_at_disconnect_is_cut_too(broker: Broker, name: str) -> None:
    """A larger value than the broker grants is no error: the session stays for a time."""
    peer = broker.connect(name, expiry=50)
    peer.disconnect(0, [(Prop.SESSION_EXPIRY, 0xFFFFFFFF)])
    broker.connect(name, clean=False, session_present=True)
