"""Connected MQTT 3.1.1 clients, and what the cases of this folder do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.wire.harness import Broker, Options
from tests.wire.packets import V3, Kind, Will
from tests.wire.peer import Peer
from tests.wire.reader import Packet

UNLIMITED: Final = Options(mosquitto=("max_queued_messages 0", "max_inflight_messages 0"))
"""No bound on what a session holds; Perdure has none unless it is set."""

GRANTED: Final = 0
BAD_PROTOCOL: Final = 1
BAD_IDENTIFIER: Final = 2
BAD_CREDENTIALS: Final = 4
NOT_AUTHORIZED: Final = 5

FAILURE: Final = 0x80
"""The one SUBACK code for a refused filter (section 3.9.3)."""


def join(
    broker: Broker,
    client_id: str = "",
    *,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    username: str | None = None,
    password: str | bytes | None = None,
    present: bool | None = None,
) -> Peer:
    """A 3.1.1 client whose CONNECT was accepted.

    Args:
        broker: where to.
        client_id: the client identifier; empty lets the broker assign one.
        clean: Clean Session.
        keep_alive: seconds.
        will: the will, if any.
        username: the user name, if any.
        password: the password, if any.
        present: what Session Present has to be, if the case depends on it.
    """
    return broker.connect(
        client_id,
        version=4,
        clean=clean,
        keep_alive=keep_alive,
        will=will,
        username=username,
        password=password,
        session_present=present,
    )


def durable(broker: Broker, client_id: str, *filters: str | tuple[str, int]) -> Peer:
    """A client with a new session that outlives its connections, subscribed to ``filters``."""
    peer = join(broker, client_id, clean=False, present=False)
    if filters:
        peer.subscribe(*filters)
    return peer


def resume(broker: Broker, client_id: str) -> Peer:
    """The client of a session that the broker must still have."""
    return join(broker, client_id, clean=False, present=True)


def send_publishes(
    peer: Peer, topic: str, payloads: Sequence[bytes], *, qos: int, first_id: int = 1
) -> None:
    """Sends one PUBLISH per payload in one burst, with consecutive packet identifiers."""
    peer.send(
        *(
            V3.publish(topic, payload, qos=qos, packet_id=first_id + index if qos else None)
            for index, payload in enumerate(payloads)
        )
    )


def take_publishes(peer: Peer, count: int) -> list[Packet]:
    """The next ``count`` packets, each a PUBLISH, none of them acknowledged."""
    return [peer.expect_packet(Kind.PUBLISH) for _ in range(count)]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Payloads that tell their place."""
    return [b"%d" % number for number in range(start, start + count)]


def payloads_of(packets: Sequence[Packet]) -> list[bytes]:
    """The payloads, in order."""
    return [found.payload for found in packets]
