"""MQTT 3.1.1, sections 3.1.2.5 to 3.1.2.7: the will."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.wire.clients import UNLIMITED, Clients
from tests.wire.harness import Broker
from tests.wire.packets import Packets, Reason, Will
from tests.wire.peer import Peer

BROKER_OPTIONS = UNLIMITED


def dying(clients: Clients, name: str, *, clean: bool = True, keep_alive: int = 60) -> Peer:
    """A client with a will of QoS 1 on ``{name}/will``."""
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1)
    return clients.join(name, clean=clean, keep_alive=keep_alive, will=will)


def watching(clients: Clients, name: str) -> Peer:
    """A client that will see the will."""
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe((f"{name}/#", 2))
    return watcher


VIOLATIONS: dict[str, Callable[[Packets], bytes]] = {
    "packet-type": lambda build: b"\xf0\x00" if build.version < 5 else b"\x00\x00",
    "qos-3": lambda build: build.publish("t", b"x", qos=3, packet_id=1),
    "second-connect": lambda build: build.connect("x"),
    "bad-topic": lambda build: build.publish("#", b"x"),
    # 5.0 refuses the filter alone, and the packet for its reserved options.
    "bad-filter": lambda build: build.subscribe(("a#", 0) if build.version < 5 else ("a", 0xC0)),
    "five-length-bytes": lambda _: b"\x30\xff\xff\xff\xff\x01",
    "disconnect-flags": lambda _: b"\xe1\x00",
}
VIOLATION_CODES: Final = (Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.TOPIC_INVALID)


@pytest.mark.spec("MQTT-3.1.2-7")
@pytest.mark.spec("MQTT-3.1.2-8")
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.trap(45)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ending", ["close", "abort", "half_close"])
def test_published_when_the_network_fails(
    clients: Clients, name: str, ending: str, clean: bool
) -> None:
    """FIN, RST or FIN of one direction, all without DISCONNECT."""
    watcher = watching(clients, name)
    peer = dying(clients, name, clean=clean)
    getattr(peer, ending)()
    watcher.receive_publish(f"{name}/will", b"gone", qos=1, retain=False, dup=False)
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("violation", VIOLATIONS)
def test_published_when_the_client_breaks_the_protocol(
    clients: Clients, name: str, violation: str, clean: bool
) -> None:
    """3.1.2.5: the server closes the connection because of a protocol error.

    Mosquitto does not publish it after a second CONNECT.
    """
    watcher = watching(clients, name)
    peer = dying(clients, name, clean=clean)
    peer.send(VIOLATIONS[violation](clients.build))
    peer.expect_refusal(*VIOLATION_CODES)
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-22")
@pytest.mark.virtual
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_published_when_the_keep_alive_is_over(clients: Clients, name: str) -> None:
    watcher = watching(clients, name)
    peer = dying(clients, name, keep_alive=1)
    peer.expect_refusal(Reason.KEEP_ALIVE_TIMEOUT, timeout_s=5)
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)


@pytest.mark.spec("MQTT-3.1.2-8")
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.spec("MQTT-3.1.4-2@3.1.1")
@pytest.mark.trap(43)
@pytest.mark.trap(44)
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_published_when_the_session_is_taken_over(
    clients: Clients, name: str, first: bool, second: bool
) -> None:
    """The server closes the older connection, so its will is published, and not the newer one's.

    [MQTT-3.1.2-8] knows DISCONNECT as the only exception.
    """
    watcher = watching(clients, name)
    older = dying(clients, name, clean=first)
    newer = clients.join(
        name, clean=second, will=Will(topic=f"{name}/newer", payload=b"newer", qos=1)
    )
    older.expect_refusal(Reason.TAKEN_OVER)
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)
    watcher.expect_nothing()
    newer.close()
    watcher.receive_publish(f"{name}/newer", b"newer", qos=1)
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-10@3.1.1")
@pytest.mark.spec("MQTT-3.14.4-3@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
def test_discarded_at_disconnect(clients: Clients, name: str, clean: bool) -> None:
    watcher = watching(clients, name)
    dying(clients, name, clean=clean).disconnect()
    watcher.expect_nothing()
    clients.join(name, clean=clean).close()
    watcher.publish(f"{name}/end", b"end")
    watcher.receive_publish(f"{name}/end", b"end")


@pytest.mark.spec("MQTT-3.1.2-10@3.1.1")
@pytest.mark.trap(44)
def test_published_once(clients: Clients, name: str) -> None:
    """It goes with its connection; a session that is resumed without one has none."""
    watcher = watching(clients, name)
    dying(clients, name, clean=False).close()
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)
    for _ in range(3):
        clients.resume(name).close()
    watcher.publish(f"{name}/end", b"end")
    watcher.receive_publish(f"{name}/end", b"end")


@pytest.mark.spec("MQTT-3.1.2-12@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
def test_no_will_flag(clients: Clients, name: str, clean: bool) -> None:
    watcher = watching(clients, name)
    clients.join(name, clean=clean).abort()
    watcher.publish(f"{name}/end", b"end")
    watcher.receive_publish(f"{name}/end", b"end")


@pytest.mark.spec("MQTT-3.1.2-16@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-17@3.1.1")
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_and_retain(clients: Clients, name: str, qos: int, retain: bool, granted: int) -> None:
    """Published with its own QoS; stored if it is to be retained, and only then."""
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe((name, granted))
    peer = clients.join(name, will=Will(topic=name, payload=b"gone", qos=qos, retain=retain))
    peer.abort()
    watcher.receive_publish(name, b"gone", qos=min(qos, granted), retain=False)
    late = clients.join(f"{name}-late")
    late.subscribe((name, granted))
    if retain:
        late.receive_publish(name, b"gone", qos=min(qos, granted), retain=True)
    late.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-6")
@pytest.mark.spec("MQTT-3.3.1-10@3.1.1")
def test_empty_retained_will_clears(clients: Clients, name: str) -> None:
    """A will is published like any message: zero bytes with RETAIN remove what is retained."""
    watcher = watching(clients, name)
    watcher.publish(f"{name}/status", b"online", retain=True, qos=1)
    watcher.receive_publish(f"{name}/status", b"online")
    clients.join(name, will=Will(topic=f"{name}/status", qos=1, retain=True)).abort()
    watcher.receive_publish(f"{name}/status", b"")
    late = clients.join(f"{name}-late")
    late.subscribe(f"{name}/status")
    late.expect_nothing()


@pytest.mark.parametrize("size", [0, 1, 127, 65_535])
def test_message_is_passed_on_whole(clients: Clients, name: str, size: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    watcher = watching(clients, name)
    clients.join(name, will=Will(topic=f"{name}/will", payload=payload, qos=1)).close()
    watcher.receive_publish(f"{name}/will", payload, qos=1)


@pytest.mark.spec("MQTT-3.1.2-5@3.1.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_kept_for_an_offline_session(clients: Clients, name: str, qos: int) -> None:
    clients.durable(f"{name}-watcher", (f"{name}/will", qos)).disconnect()
    witness = clients.join(f"{name}-witness")
    witness.subscribe((f"{name}/#", 2))
    clients.join(name, will=Will(topic=f"{name}/will", payload=b"gone", qos=qos)).abort()
    witness.receive_publish(f"{name}/will", b"gone", qos=qos)
    watcher = clients.resume(f"{name}-watcher")
    watcher.receive_publish(f"{name}/will", b"gone", qos=qos, dup=False)


def test_own_will_waits_in_the_own_session(clients: Clients, name: str) -> None:
    """A session that subscribes to its own will's topic gets it when it is back."""
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1)
    peer = clients.join(name, clean=False, will=will)
    peer.subscribe((f"{name}/will", 1))
    peer.abort()
    again = clients.resume(name)
    again.receive_publish(f"{name}/will", b"gone", qos=1)


def test_will_follows_what_was_published_before(clients: Clients, name: str) -> None:
    """The will is the last word of its connection."""
    watcher = watching(clients, name)
    peer = dying(clients, name)
    peer.send(
        *(clients.build.publish(f"{name}/t", b"%d" % i, qos=1, packet_id=i + 1) for i in range(20))
    )
    peer.half_close()
    for index in range(20):
        watcher.receive_publish(f"{name}/t", b"%d" % index, qos=1)
    watcher.receive_publish(f"{name}/will", b"gone", qos=1)


@pytest.mark.virtual
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
def test_will_of_a_client_that_stays_is_not_published(
    broker: Broker, clients: Clients, name: str
) -> None:
    """A client that keeps pinging beyond its keep alive stays."""
    watcher = watching(clients, name)
    peer = dying(clients, name, keep_alive=1)
    for _ in range(5):
        broker.elapse(0.5)
        peer.expect_nothing()
    watcher.expect_nothing()
