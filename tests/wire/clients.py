"""Clients of one protocol version: what a case that holds for both versions makes its clients with.

Where the versions name things differently, the methods here have 3.1.1's meaning: a session that
is not clean outlives its connections, in 5.0 by a Session Expiry Interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tests.wire.harness import Broker, Options
from tests.wire.packets import V3, V5, Kind, Packets, Will
from tests.wire.peer import Peer
from tests.wire.reader import Packet

UNLIMITED: Final = Options(
    settings={"mqtt.receive_maximum": "65535"},
    mosquitto=("max_queued_messages 0", "max_inflight_messages 0"),
)
"""No bound on what a session holds, which Perdure has none of unless it is set, and in 5.0 none on
what a client has under way: 3.1.1 knows no such bound."""

EXPIRY_S: Final = 600
"""Session Expiry Interval of a 5.0 session that is not clean."""


@final
class Clients:
    """Clients of a broker that speak one version.

    Args:
        broker: where they connect.
        version: 4 for MQTT 3.1.1, 5 for MQTT 5.0.

    Attributes:
        build: makes packets of that version.
    """

    def __init__(self, broker: Broker, version: int) -> None:
        self.version = version
        self.build: Packets = V5 if version >= 5 else V3
        self._broker = broker

    def peer(self) -> Peer:
        """A connection on which nothing was sent."""
        return self._broker.peer(self.version)

    def join(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive: int = 60,
        will: Will | None = None,
        username: str | None = None,
        password: str | bytes | None = None,
        present: bool | None = None,
    ) -> Peer:
        """A client whose CONNECT was accepted.

        Args:
            client_id: the client identifier; empty lets the broker assign one.
            clean: the session begins and ends with the connection.
            keep_alive: seconds.
            will: the will, if any.
            username: the user name, if any.
            password: the password, if any.
            present: what Session Present has to be, if the case depends on it.
        """
        return self._broker.connect(
            client_id,
            version=self.version,
            clean=clean,
            keep_alive=keep_alive,
            will=will,
            username=username,
            password=password,
            expiry=EXPIRY_S if self.version >= 5 and not clean else None,
            session_present=present,
        )

    def durable(self, client_id: str, *filters: str | tuple[str, int]) -> Peer:
        """A client with a new session that outlives its connections, subscribed to ``filters``."""
        peer = self.join(client_id, clean=False, present=False)
        if filters:
            peer.subscribe(*filters)
        return peer

    def resume(self, client_id: str) -> Peer:
        """The client of a session that the broker must still have."""
        return self.join(client_id, clean=False, present=True)

    def settle(self) -> None:
        """Returns when the acknowledgements that clients have sent are on disk.

        They are written at most milliseconds late; whatever a PUBACK follows has them there.
        """
        self.join().publish("settle", b"", qos=1)


def send_publishes(
    peer: Peer, topic: str, payloads: Sequence[bytes], *, qos: int, first_id: int = 1
) -> None:
    """Sends one PUBLISH per payload in one burst, with consecutive packet identifiers."""
    build = peer.build
    peer.send(
        *(
            build.publish(topic, payload, qos=qos, packet_id=first_id + index if qos else None)
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
