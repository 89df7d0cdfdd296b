"""Brokers for byte-level cases: what a case may do with one, however it runs.

A case gets a ``Broker`` and its clients from the fixture ``broker`` (``conftest``), which chooses
the transport: most cases run on the virtual network (``virtual_broker``), where a whole broker
lives in this process and time passes only when someone waits; a part of them runs on a real
process and real sockets as well (``process_broker``).

``PERDURE_WIRE_BROKER=mosquitto`` runs the same cases on Mosquitto, which checks the cases
themselves: there a close without a reason code passes, and a case that still fails cites the
clause that Mosquitto breaks. ``PERDURE_TEST_BACKEND`` puts the broker's state into a server.
Nothing here may import ``perdure``.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from tests.wire.packets import Prop, Properties, Will
from tests.wire.peer import Peer
from tests.wire.transport import Transport


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a module wants its broker configured; a module states it as ``BROKER_OPTIONS``.

    Attributes:
        settings: ``--set`` settings of Perdure; ``{directory}`` stands for the broker's own.
        mosquitto: lines that give Mosquitto the same behaviour; ``{directory}`` as above.
        users: names and passwords that go into the file ``users`` of the directory.
        files: names and contents of further files there.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    mosquitto: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class Broker(abc.ABC):
    """A broker on data of its own, and its clients."""

    def __init__(self) -> None:
        self._peers: list[Peer] = []

    # --- the broker ---------------------------------------------------------------------

    @abc.abstractmethod
    def start(self) -> None:
        """Starts it; returns when it accepts connections."""

    @abc.abstractmethod
    def stop(self) -> int:
        """Ends it in order; returns its exit code."""

    @abc.abstractmethod
    def kill9(self, *, start: bool = True) -> None:
        """It dies as by SIGKILL and, if ``start``, another starts on the same data."""

    @abc.abstractmethod
    def check_health(self) -> None:
        """Fails if it died or met an unhandled exception since the last check."""

    def restart(self) -> None:
        """Stops in order and starts again on the same data."""
        self.stop()
        self.start()

    # --- time ---------------------------------------------------------------------------

    @abc.abstractmethod
    def elapse(self, seconds: float) -> None:
        """Lets time pass, for the cases whose subject is an interval of the specification."""

    @abc.abstractmethod
    def now_s(self) -> float:
        """Monotonic time, seconds."""

    @abc.abstractmethod
    def now_us(self) -> int:
        """Wall time of the broker's clock, microseconds since the epoch."""

    # --- clients ------------------------------------------------------------------------

    @abc.abstractmethod
    def _transport(self) -> Transport:
        """A new connection."""

    def peer(self, version: int = 5) -> Peer:
        """A connection on which nothing was sent."""
        peer = Peer(self._transport(), version)
        self._peers.append(peer)
        return peer

    def close_peers(self) -> None:
        """Closes all connections handed out so far, without DISCONNECT."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()

    def connect(
        self,
        client_id: str,
        *,
        version: int = 5,
        clean: bool = True,
        keep_alive: int = 60,
        will: Will | None = None,
        username: str | None = None,
        password: str | bytes | None = None,
        properties: Properties = (),
        expiry: int | None = None,
        session_present: bool | None = None,
    ) -> Peer:
        """A connected client; its CONNACK is kept in ``connack``.

        Args:
            client_id: the client identifier.
            version: 4 for MQTT 3.1.1, 5 for MQTT 5.0.
            clean: Clean Session (3.1.1) or Clean Start (5.0).
            keep_alive: seconds.
            will: the will, if any.
            username: the user name, if any.
            password: the password, if any.
            properties: CONNECT properties (5.0).
            expiry: Session Expiry Interval, put before the other properties (5.0).
            session_present: what the CONNACK has to say, if the case depends on it.
        """
        if expiry is not None:
            if isinstance(properties, bytes):
                raise TypeError("expiry goes with a list of properties")
            properties = [(Prop.SESSION_EXPIRY, expiry), *properties]
        peer = self.peer(version)
        connect = peer.build.connect(
            client_id,
            clean=clean,
            keep_alive=keep_alive,
            will=will,
            username=username,
            password=password,
            properties=properties,
        )
        peer.send(connect)
        peer.expect_connack(0, session_present=session_present)
        return peer
