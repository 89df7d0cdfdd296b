"""The packets that are not messages or their acknowledgements: who handles each, off the hot path.

They are coroutines that finish at once unless they must wait; the packets behind one that waits are
kept until it is done.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, final

from perdure.broker.connection.ending import EndingConnection
from perdure.broker.runtime.scheduler import run_eagerly
from perdure.errors import LoginRefused, MqttError, StorageError
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import (
    PINGREQ,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Subscribe,
    Unsubscribe,
)
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR

if TYPE_CHECKING:
    from perdure.broker.connection.connect_handler import ConnectHandler
    from perdure.broker.connection.enhanced_auth import EnhancedAuth
    from perdure.broker.connection.subscribe_handler import SubscribeHandler
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.sessions.lifecycle import SessionLifecycle
    from perdure.broker.shared.echoes import Echoes


@final
class ControlPackets:
    """Has each handled.

    Args:
        core: what every part stands on.
        connect_handler, echoes, enhanced_auth, sessions, subscribe_handler: who handles them.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        connect_handler: ConnectHandler,
        echoes: Echoes,
        enhanced_auth: EnhancedAuth,
        sessions: SessionLifecycle,
        subscribe_handler: SubscribeHandler,
    ) -> None:
        self._core = core
        self._connect_handler: ConnectHandler = connect_handler
        self._echoes: Echoes = echoes
        self._enhanced_auth: EnhancedAuth = enhanced_auth
        self._sessions: SessionLifecycle = sessions
        self._subscribe_handler: SubscribeHandler = subscribe_handler

    def handle(self, connection: EndingConnection, packet: Packet) -> bool:
        """Handle a packet off the hot path; False if those behind it must wait."""
        kind = packet.kind
        work: Coroutine[Any, Any, None]
        if kind == PINGREQ:
            if self._core.peers is None or connection.session is None:
                connection.sender.packet(Pingresp())
                return True
            work = self._answer_ping(connection, connection.session)
            return self._run(connection, work, packet)
        if isinstance(packet, Disconnect):
            self._disconnect(connection, packet)
            return False  # nothing behind it counts
        core = self._core
        if isinstance(packet, Connect):
            connection.begin_opening()
            is_answered = run_eagerly(
                core.scheduler,
                self._guard(connection, self._connect_handler.connect(connection, packet), packet),
                name="connect",
            )
            if not is_answered and connection.is_connack_due:
                connection.keep_alive.connack_is_due()
            return not connection.inbound_gate.is_held
        if isinstance(packet, Subscribe):
            _take_rate(connection)
            work = self._subscribe_handler.subscribe(connection, packet)
        elif isinstance(packet, Unsubscribe):
            _take_rate(connection)
            work = self._subscribe_handler.unsubscribe(connection, packet)
        elif isinstance(packet, Auth):
            work = self._enhanced_auth.auth(connection, packet)
        else:
            raise ProtocolViolation("a server does not take this packet")
        return self._run(connection, work, packet)

    def _run(
        self, connection: EndingConnection, work: Coroutine[Any, Any, None], packet: Packet
    ) -> bool:
        """Do a packet's work; False if those behind it must wait."""
        guarded = self._guard(connection, work, packet)
        if run_eagerly(self._core.scheduler, guarded, name="packet"):
            return True
        connection.inbound_gate.hold()
        return False

    async def _answer_ping(self, connection: EndingConnection, session: LiveSession) -> None:
        """Where there are other nodes: behind what they have acknowledged before."""
        await self._echoes.caught_up(session)
        if connection.is_connected:
            connection.sender.packet(Pingresp())

    async def _guard(
        self, connection: EndingConnection, work: Coroutine[Any, Any, None], packet: Packet
    ) -> None:
        """Run a slow packet's work; a fault of the peer ends the connection, not the task."""
        try:
            await work
        except LoginRefused as error:
            if error.delay_us:
                connection.refuse_later(error)
            else:
                connection.fail(error)
        except MqttError as error:
            connection.fail(error)
        except StorageError as error:
            self._core.read_failed(error, address=connection.peer.address)
            connection.storage_lost(UNSPECIFIED_ERROR)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            connection.broke(error, "packet", packet)
        try:
            if connection.inbound_gate.is_held and connection.is_connected:
                connection.resume()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            connection.broke(error, "packet")

    def _disconnect(self, connection: EndingConnection, packet: Disconnect) -> None:
        expiry_s = packet.properties.session_expiry_interval
        session = connection.session
        assert session is not None
        if expiry_s is not None:
            if session.record.expiry_s == 0 and expiry_s:
                raise ProtocolViolation("session expiry 0 cannot be raised at DISCONNECT")
            self._sessions.change_expiry(session, expiry_s)
        connection.take_leave(send_will=packet.reason != 0)


def _take_rate(connection: EndingConnection) -> None:
    """A SUBSCRIBE or UNSUBSCRIBE came: read no more for a while if there were too many."""
    if connection.subscribe_bucket is not None:
        wait_us = connection.subscribe_bucket.take(1, connection.received_us)
        if wait_us:
            connection.inbound_gate.throttle(wait_us)
