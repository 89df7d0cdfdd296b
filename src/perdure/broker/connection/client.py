"""A connection as those see it who work for it: the handlers of its packets, its exchanges, its
timer and the log of refusals. ``Connection`` is the one that there is.

A base class and no protocol, since what is compiled reads the fields of a class at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from perdure.broker.auth.authenticate import EnhancedMethod
    from perdure.broker.connection.inbound_gate import InboundGate
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.sender import Sender
    from perdure.broker.runtime.stream import PeerInfo
    from perdure.broker.runtime.token_bucket import TokenBucket
    from perdure.mqtt.packets import Auth, Connack, Connect

NEW: Final = 0
OPENING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3


class ClientConnection:
    """One client's connection.

    Attributes:
        about: what the log may know of a refusal and the client may not.
        auth_method, auth_name: the AUTH exchange under way, and the method of the connection.
        foreign: the protocol of what came in place of a CONNECT, as far as it is known.
        is_connected: CONNACK was sent and the connection has not been closed.
        opening: the CONNECT, until it is answered.
        problem_information: the client wants reason strings.
        received_us: monotonic time at which the last bytes came.
    """

    __slots__ = (
        "_state",
        "about",
        "auth_method",
        "auth_name",
        "foreign",
        "inbound_gate",
        "is_connected",
        "opening",
        "peer",
        "problem_information",
        "received_us",
        "sender",
        "session",
    )

    def __init__(
        self, peer: PeerInfo, inbound_gate: InboundGate, sender: Sender, *, received_us: int
    ) -> None:
        self._state: int = NEW
        self.about: dict[str, str] | None = None
        self.auth_method: EnhancedMethod | None = None
        self.auth_name: str = ""
        self.foreign: str = ""
        self.inbound_gate: InboundGate = inbound_gate
        self.is_connected: bool = False
        self.opening: Connect | None = None
        self.peer: PeerInfo = peer
        self.problem_information: bool = True
        self.received_us: int = received_us
        self.sender: Sender = sender
        self.session: LiveSession | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the connection has been closed, by either side."""
        return self._state == CLOSED

    @property
    def is_connack_due(self) -> bool:
        """The client has done its part of a CONNECT, and waits."""
        return self._state == OPENING and not self.inbound_gate.awaits_packet

    def write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        raise NotImplementedError

    def count(self, protocol: int) -> None:
        """Count the connection, once its protocol version is known."""
        raise NotImplementedError

    def accept(
        self,
        *,
        keep_alive_s: int,
        topic_aliases: int,
        publish: TokenBucket | None,
        publish_bytes: TokenBucket | None,
        subscribe: TokenBucket | None,
    ) -> None:
        """Hold the client to what CONNACK tells it.

        Args:
            keep_alive_s: 0 = it may be silent.
            topic_aliases: that it may set; -1 = its version has none.
            publish, publish_bytes, subscribe: its rates.
        """
        raise NotImplementedError

    def opened(self, session: LiveSession, connack: Connack) -> None:
        """The session is durable: CONNACK, then what waits behind the CONNECT."""
        raise NotImplementedError

    async def next_auth(self) -> Auth:
        """Wait for the client's AUTH during the CONNECT; anything else breaks the protocol."""
        raise NotImplementedError

    def give_up(self, why: str) -> None:
        """Close without a word, if CONNACK was not sent yet."""
        raise NotImplementedError

    def close(self, reason_code: int) -> None:
        """Take leave of the peer with a reason code, then close."""
        raise NotImplementedError

    def disconnect(
        self,
        reason_code: int,
        reason: str,
        *,
        send_will: bool,
        is_logged: bool = False,
        server_reference: str = "",
    ) -> None:
        """Send DISCONNECT (5.0; CONNACK if that was not sent yet) and close.

        Args:
            reason_code: why.
            reason: for people.
            send_will: the will is due.
            is_logged: the log has a line of it already.
            server_reference: where a client of 5.0 shall go instead; empty = nowhere.
        """
        raise NotImplementedError

    def storage_lost(self, reason_code: int) -> None:
        """A commit that this client waits for has failed."""
        raise NotImplementedError

    def broke(self, error: Exception, where: str) -> None:
        """Something of this connection failed as nobody expected: it ends, the others go on.

        Args:
            error: what was raised.
            where: kind of step.
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Cut the connection without a word; whatever it holds may stay as it is."""
        raise NotImplementedError

    def has_hung_up(self) -> bool:
        """Whether the client is gone, and has said nothing that is still to be processed."""
        raise NotImplementedError
