"""MQTT 3.1.1, sections 3.1.2.5 to 3.1.2.7: the will."""

from __future__ import annotations

import pytest
from tests.wire.harness import Broker
from tests.wire.packets import V3, Will
from tests.wire.peer import Peer
from tests.wire.v3.clients import UNLIMITED, durable, join, resume

BROKER_OPTIONS = UNLIMITED


def dying(broker: Broker, name: str, *, clean: bool = True, keep_alive: int = 60) -> Peer:
    """A client with a will of QoS 1 on ``{name}/will``."""
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1)
    return join(broker, name, clean=clean, keep_alive=keep_alive, will=will)


def watching(broker: Broker, name: str) -> Peer:
    """A client that will see the will."""
    watcher = join(broker, f"{name}-watcher")
    watcher.subscribe((f"{name}/#", 2))
    return watcher


VIOLATIONS = {
    "packet-type": b"\xf0\x00",
    "qos-3": b"\x36\x05\x00\x01t\x00\x01",
    "second-connect": V3.connect("x"),
    "bad-topic": V3.publish("#", b"x"),
    "bad-filter": V3.subscribe(("a#", 0)),
    "five-length-bytes": b"\x30\xff\xff\xff\xff\x01",
    "disconnect-flags": b"\xe1\x00",
}


@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.trap(45)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ending", ["close", "abort", "half_close"])
def test_published_when_the_network_fails(
    broker: Broker, name: str, ending: str, clean: bool
) -> None:
    """FIN, RST or FIN of one direction, all without DISCONNECT."""
    watcher = watching(broker, name)
    peer = dying(broker, name, clean=clean)
    getattr(peer, ending)()
    watcher.receive_publish(f"{name}/will", b"gone", qos=1, retain=False, dup=False)
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("raw", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_published_when_the_client_breaks_the_protocol(
    broker: Broker, name: str, raw: bytes, clean: bool
) -> None:
    """3.1.2.5: the server closes the connection because of a protocol error.

    Mosquitto does not publish it after a second CONNECT.
    """
    watcher = watching(broker, name)
    peer = dying(broker, name, clean=clean)
    peer.send(raw)
    peer.expect_closed()
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)
    watcher.expect_nothing()


@pytest.mark.slow
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_published_when_the_keep_alive_is_over(broker: Broker, name: str) -> None:
    watcher = watching(broker, name)
    peer = dying(broker, name, keep_alive=1)
    peer.expect_closed(timeout_s=5)
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)


@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.spec("MQTT-3.1.4-2@3.1.1")
@pytest.mark.trap(43)
@pytest.mark.trap(44)
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_published_when_the_session_is_taken_over(
    broker: Broker, name: str, first: bool, second: bool
) -> None:
    """The server closes the older connection, so its will is published, and not the newer one's.

    [MQTT-3.1.2-8] knows DISCONNECT as the only exception.
    """
    watcher = watching(broker, name)
    older = dying(broker, name, clean=first)
    newer = join(
        broker, name, clean=second, will=Will(topic=f"{name}/newer", payload=b"newer", qos=1)
    )
    older.expect_closed()
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)
    watcher.expect_nothing()
    newer.close()
    watcher.receive_publish(f"{name}/newer", b"newer", qos=1)
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-10@3.1.1")
@pytest.mark.spec("MQTT-3.14.4-3@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
def test_discarded_at_disconnect(broker: Broker, name: str, clean: bool) -> None:
    watcher = watching(broker, name)
    dying(broker, name, clean=clean).disconnect()
    watcher.expect_nothing()
    join(broker, name, clean=clean).close()
    watcher.publish(f"{name}/end", b"end")
    watcher.receive_publish(f"{name}/end", b"end")


@pytest.mark.spec("MQTT-3.1.2-10@3.1.1")
@pytest.mark.trap(44)
def test_published_once(broker: Broker, name: str) -> None:
    """It goes with its connection; a session that is resumed without one has none."""
    watcher = watching(broker, name)
    dying(broker, name, clean=False).close()
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)
    for _ in range(3):
        resume(broker, name).close()
    watcher.publish(f"{name}/end", b"end")
    watcher.receive_publish(f"{name}/end", b"end")


@pytest.mark.spec("MQTT-3.1.2-12@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
def test_no_will_flag(broker: Broker, name: str, clean: bool) -> None:
    watcher = watching(broker, name)
    join(broker, name, clean=clean).abort()
    watcher.publish(f"{name}/end", b"end")
    watcher.receive_publish(f"{name}/end", b"end")


@pytest.mark.spec("MQTT-3.1.2-16@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-17@3.1.1")
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_and_retain(broker: Broker, name: str, qos: int, retain: bool, granted: int) -> None:
    """Published with its own QoS; stored if it is to be retained, and only then."""
    watcher = join(broker, f"{name}-watcher")
    watcher.subscribe((name, granted))
    peer = join(broker, name, will=Will(topic=name, payload=b"gone", qos=qos, retain=retain))
    peer.abort()
    watcher.receive_publish(name, b"gone", qos=min(qos, granted), retain=False)
    late = join(broker, f"{name}-late")
    late.subscribe((name, granted))
    if retain:
        late.receive_publish(name, b"gone", qos=min(qos, granted), retain=True)
    late.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-10@3.1.1")
def test_empty_retained_will_clears(broker: Broker, name: str) -> None:
    """A will is published like any message: zero bytes with RETAIN remove what is retained."""
    watcher = watching(broker, name)
    watcher.publish(f"{name}/status", b"online", retain=True, qos=1)
    watcher.receive_publish(f"{name}/status", b"online")
    join(broker, name, will=Will(topic=f"{name}/status", qos=1, retain=True)).abort()
    watcher.receive_publish(f"{name}/status", b"")
    late = join(broker, f"{name}-late")
    late.subscribe(f"{name}/status")
    late.expect_nothing()


@pytest.mark.parametrize("size", [0, 1, 127, 65_535])
def test_message_is_passed_on_whole(broker: Broker, name: str, size: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    watcher = watching(broker, name)
    join(broker, name, will=Will(topic=f"{name}/will", payload=payload, qos=1)).close()
    watcher.receive_publish(f"{name}/will", payload, qos=1)


@pytest.mark.spec("MQTT-3.1.2-5@3.1.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_kept_for_an_offline_session(broker: Broker, name: str, qos: int) -> None:
    durable(broker, f"{name}-watcher", (f"{name}/will", qos)).disconnect()
    witness = join(broker, f"{name}-witness")
    witness.subscribe((f"{name}/#", 2))
    join(broker, name, will=Will(topic=f"{name}/will", payload=b"gone", qos=qos)).abort()
    witness.receive_publish(f"{name}/will", b"gone", qos=qos)
    watcher = resume(broker, f"{name}-watcher")
    watcher.receive_publish(f"{name}/will", b"gone", qos=qos, dup=False)


def test_own_will_waits_in_the_own_session(broker: Broker, name: str) -> None:
    """A session that subscribes to its own will's topic gets it when it is back."""
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1)
    peer = join(broker, name, clean=False, will=will)
    peer.subscribe((f"{name}/will", 1))
    peer.abort()
    again = resume(broker, name)
    again.receive_publish(f"{name}/will", b"gone", qos=1)


def test_will_follows_what_was_published_before(broker: Broker, name: str) -> None:
    """The will is the last word of its connection."""
    watcher = watching(broker, name)
    peer = dying(broker, name)
    peer.send(*(V3.publish(f"{name}/t", b"%d" % i, qos=1, packet_id=i + 1) for i in range(20)))
    peer.half_close()
    for index in range(20):
        watcher.receive_publish(f"{name}/t", b"%d" % index, qos=1)
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)


@pytest.mark.slow
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
def test_will_of_a_client_that_stays_is_not_published(broker: Broker, name: str) -> None:
    """A client that keeps pinging beyond its keep alive stays."""
    watcher = watching(broker, name)
    peer = dying(broker, name, keep_alive=1)
    for _ in range(5):
        broker.elapse(0.5)
        peer.expect_nothing()
    watcher.expect_nothing()
