"""How a connection ends: in order, by a fault of its peer, or by one of ours.

Invariant: whatever a client sends costs at most its own connection (``unexpected_errors``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from perdure.broker.connection.client import CLOSED, CONNECTED, NEW, OPENING, ClientConnection
from perdure.broker.connection.disconnect_reply import refuse, send_disconnect
from perdure.broker.connection.heavy_turns import Waiting, weight
from perdure.broker.connection.keep_alive import KeepAlive
from perdure.broker.delivery.live_session import SessionParts
from perdure.broker.publish.path import REFUSALS
from perdure.errors import LoginRefused, MqttError, StorageError
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import KIND_NAMES, Auth, Disconnect, Packet
from perdure.mqtt.reason_codes import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    SERVER_SHUTTING_DOWN,
    SERVER_UNAVAILABLE,
    UNSPECIFIED_ERROR,
)
from perdure.observe.instruments import add

if TYPE_CHECKING:
    from perdure.broker.connection.heavy_turns import HeavyTurns
    from perdure.broker.connection.inbound_gate import InboundGate
    from perdure.broker.connection.newcomers import Newcomers
    from perdure.broker.connection.refusal_log import RefusalLog
    from perdure.broker.delivery.sender import Sender
    from perdure.broker.runtime.stream import ByteStream, PeerInfo
    from perdure.broker.runtime.token_bucket import TokenBucket
    from perdure.broker.sessions.lifecycle import SessionLifecycle


LEAVE: Final = "disconnect"
"""Why a connection ended that its client has taken leave of."""


class EndingParts(SessionParts):
    """Who must know that a connection ends."""

    __slots__ = ("heavy_turns", "newcomers", "refusal_log", "sessions")

    heavy_turns: HeavyTurns
    newcomers: Newcomers
    refusal_log: RefusalLog
    sessions: SessionLifecycle


class EndingConnection(ClientConnection):
    """A connection, as far as it begins, is counted and ends.

    Args:
        parts: what every part stands on.
        stream: the transport.
        peer, inbound_gate, sender, received_us: see ``ClientConnection``.

    Attributes:
        counted_protocol: label under which the connection was counted; empty = not counted.
        has_large_frame: it has room for a large packet, or waits for it.
        unknown_bytes: what it has sent and waits since nobody knows it yet (``newcomers``).
        keep_alive: ends it when nothing comes.
        subscribe_bucket: its rate of SUBSCRIBEs and UNSUBSCRIBEs; None = no bound.
    """

    __slots__ = (
        "_ending_parts",
        "_farewell_will",
        "_stream",
        "counted_protocol",
        "has_large_frame",
        "keep_alive",
        "subscribe_bucket",
        "unknown_bytes",
    )

    def __init__(
        self,
        parts: EndingParts,
        stream: ByteStream,
        peer: PeerInfo,
        inbound_gate: InboundGate,
        sender: Sender,
        *,
        received_us: int,
    ) -> None:
        super().__init__(peer, inbound_gate, sender, received_us=received_us)
        self._ending_parts: EndingParts = parts
        self._stream: ByteStream = stream
        self._farewell_will: bool | None = None
        """Whether its will is to be sent, as the client said by DISCONNECT; None = none came."""
        self.counted_protocol: str = ""
        self.has_large_frame: bool = False
        self.unknown_bytes: int = 0
        self.subscribe_bucket: TokenBucket | None = None
        self.keep_alive: KeepAlive = KeepAlive(parts, self)

    def begin_opening(self) -> None:
        """The CONNECT is here: nothing else is processed until it is answered."""
        self._state = OPENING
        self._is_known()
        self.inbound_gate.hold()

    def resume(self) -> None:
        """Process the packets that were kept."""
        raise NotImplementedError

    def give_back_frame(self) -> None:
        """The large packet has come, or will not: others may have its room."""
        raise NotImplementedError

    def _may_wait(self, size: int) -> bool:
        """Keep bytes of a client that nobody knows yet; False if it was closed instead."""
        parts = self._ending_parts
        if parts.newcomers.take(size):
            self.unknown_bytes += size
            return True
        add(parts.metrics.limit_refusals, ("limits.connect_bytes_max",))
        self.give_up("too many bytes of clients wait that are not connected yet")
        return False

    def _is_known(self) -> None:
        """What it has sent was looked at, or will not be."""
        if self.unknown_bytes:
            self._ending_parts.newcomers.give_back(self.unknown_bytes)
            self.unknown_bytes = 0

    def count(self, protocol: int) -> None:
        """Count the connection, once its protocol version is known."""
        self.counted_protocol = "3.1.1" if protocol < 5 else "5.0"
        self._ending_parts.metrics.connection_opened(self.peer.listener, self.counted_protocol)

    async def next_auth(self) -> Auth:
        """Wait for the client's AUTH during the CONNECT; anything else breaks the protocol."""
        self.sender.flush()
        packet = await self.inbound_gate.next_packet()
        self._ending_parts.metrics.control_packets_received[packet.kind] += 1
        if isinstance(packet, Disconnect):
            self.give_up("gave up authentication")
            raise MqttError(PROTOCOL_ERROR, "closed")
        if not isinstance(packet, Auth):
            # [MQTT-3.1.2-30] until CONNACK only AUTH and DISCONNECT may come.
            raise ProtocolViolation("AUTH expected")
        self.inbound_gate.hold()
        return packet

    def take_leave(self, *, send_will: bool) -> None:
        """The client has sent DISCONNECT."""
        turns, size = self._ending_parts.heavy_turns, weight(self.session)
        if turns.may_write(size):
            self.end(LEAVE, send_will=send_will)
            return
        self._farewell_will = send_will
        self.is_connected = False
        self.inbound_gate.hold()
        self.inbound_gate.close()
        self.keep_alive.stop()
        turns.wait(Waiting(turns, size, functools.partial(self._end_in_turn, LEAVE, size)))

    def connection_lost(self, exc: BaseException | None) -> None:
        """The transport is gone."""
        if self._state == CLOSED:
            self.let_go()
            return
        why = "connection lost" if exc is None else type(exc).__name__
        turns, size = self._ending_parts.heavy_turns, weight(self.session)
        if not turns.may_write(size):
            self.is_connected = False  # groups give it nothing more
            turns.wait(Waiting(turns, size, functools.partial(self._lost, why, size)))
        else:
            self._lost(why, size)

    def _lost(self, why: str, size: int) -> bool:
        """It ends, and has nothing more to do."""
        self._end_in_turn(why, size)
        self.let_go()
        return False

    def _end_in_turn(self, why: str, size: int) -> bool:
        """It ends, if it has not meanwhile."""
        try:
            if self._state != CLOSED:
                self._ending_parts.committer.log_sync.large_bytes += size
                self.end(why, send_will=True)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self.broke(error, "close")
        return False

    def let_go(self) -> None:
        """Keep nothing alive that knew the connection."""
        raise NotImplementedError

    def close(self, reason_code: int) -> None:
        """Take leave of the peer with a reason code, then close."""
        self.disconnect(reason_code, "", send_will=True)

    def disconnect(
        self,
        reason_code: int,
        reason: str,
        *,
        send_will: bool,
        is_logged: bool = False,
        server_reference: str = "",
    ) -> None:
        """Send DISCONNECT, or CONNACK if that was not sent, and close; see ``ClientConnection``."""
        if self._state == CLOSED:
            return
        reason_string = reason if self.problem_information else ""  # [MQTT-3.1.2-29]
        metrics = self._ending_parts.metrics
        if self._state == CONNECTED:
            send_disconnect(self.sender, reason_code, reason_string, server_reference)
        else:
            refuse(self.sender, metrics, reason_code, reason_string)
            if reason_code != SERVER_SHUTTING_DOWN and not is_logged:
                self._ending_parts.refusal_log.connect(self, reason_code, reason)
        if reason_code in (MALFORMED_PACKET, PROTOCOL_ERROR):
            metrics.protocol_errors[reason_code] += 1
        why = f"0x{reason_code:02x} {reason}".rstrip()
        self.end(why, send_will=send_will, is_logged=is_logged)

    def storage_lost(self, reason_code: int) -> None:
        """A commit that this client waits for has failed."""
        reason = REFUSALS.get(reason_code, REFUSALS[UNSPECIFIED_ERROR])
        if self._state != CONNECTED:
            # CONNACK has a word for it, which 3.1.1 has too.
            reason_code = SERVER_UNAVAILABLE
        self.disconnect(reason_code, reason, send_will=True)

    def fail(self, error: MqttError) -> None:
        """The peer broke the protocol or was refused."""
        is_client = self._state == CONNECTED
        if is_client:
            self._ending_parts.refusal_log.dropped(self, error.reason_code, error.message)
        self.disconnect(error.reason_code, error.message, send_will=True, is_logged=is_client)

    def refuse_later(self, error: LoginRefused) -> None:
        """Log a failed login now and answer it after a while, for which nothing of it is kept."""
        if self._state != OPENING:
            return
        self._ending_parts.refusal_log.connect(self, error.reason_code, error.message)
        self.opening = self.about = None
        self.inbound_gate.close()
        self.keep_alive.refuse_later(error.delay_us, error.reason_code, error.message)

    def give_up(self, why: str) -> None:
        """Close without a word, if CONNACK was not sent yet."""
        if self._state == NEW or self._state == OPENING:
            self._ending_parts.refusal_log.connect(self, 0, why)
            self.end(why, send_will=False)

    def broke(self, error: Exception, where: str, packet: Packet | None = None) -> None:
        """Something of this connection failed as nobody expected: it ends, the others go on.

        Args:
            error: what was raised.
            where: kind of step.
            packet: what was worked on.
        """
        parts = self._ending_parts
        if isinstance(error, StorageError):
            parts.read_failed(error, address=self.peer.address)
            self._try_to_end(UNSPECIFIED_ERROR, REFUSALS[UNSPECIFIED_ERROR])
            return
        session = self.session
        parts.unexpected_errors.report(
            error,
            where,
            client_id=session.client_id if session is not None else "",
            username=session.identity.username if session is not None else "",
            address=self.peer.address,
            listener=self.peer.listener,
            packet=KIND_NAMES[packet.kind] if packet is not None else "",
        )
        self._try_to_end(IMPLEMENTATION_SPECIFIC_ERROR, "internal error")

    def _try_to_end(self, reason_code: int, reason: str) -> None:
        """End a connection whose state cannot be trusted; the transport goes in any case."""
        try:
            self.disconnect(reason_code, reason, send_will=True)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._ending_parts.unexpected_errors.report(error, "close", address=self.peer.address)
            self.abort()

    def abort(self) -> None:
        """Cut the connection without a word; whatever it holds may stay as it is."""
        self._state = CLOSED
        self.is_connected = False
        self._is_known()
        self.inbound_gate.close()
        self._stream.abort()

    def end(self, why: str, *, send_will: bool, is_logged: bool = False) -> None:
        """Leave the session and close the stream after what was sent."""
        if self._farewell_will is not None:
            why, send_will = LEAVE, self._farewell_will
        was_connected = self._state == CONNECTED
        self._state = CLOSED
        self.is_connected = False
        self._is_known()
        self.inbound_gate.close()
        self.keep_alive.stop()
        parts = self._ending_parts
        if self.has_large_frame:
            self.give_back_frame()
        parts.pipeline.now_us = parts.clock.now_us()
        session = self.session
        if session is not None and session.is_open:
            parts.sessions.detach(session, send_will=send_will)
        if self.counted_protocol:
            parts.metrics.connection_closed(self.peer.listener, why.split(" ", 1)[0])
        self.opening = self.about = None
        if was_connected and session is not None and not is_logged:
            parts.log.info(
                "connection.closed",
                client_id=session.client_id,
                username=session.identity.username,
                address=self.peer.address,
                listener=self.peer.listener,
                reason=why,
            )
        self.sender.flush()
        self.sender.closed = True
        self._stream.close()
        parts.pipeline.schedule()
