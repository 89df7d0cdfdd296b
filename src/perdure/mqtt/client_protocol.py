"""An MQTT client of either version, without I/O: the command line, the bench tool and tests use it.

The shell calls ``connect`` for each new transport, writes ``data_to_send`` after every call,
hands what it reads to ``receive`` and tells ``connection_lost`` when the transport is gone.
Time is the shell's too: it calls ``ping`` within ``keep_alive`` seconds. The session outlives
the connection: what was not acknowledged is sent again when the server still knows the session.

Invariants: nothing but CONNECT (and AUTH) goes out before the server has answered; every message
of QoS 1 or 2 given to ``publish`` is reported by exactly one ``Published``.
"""

from __future__ import annotations

from typing import Final, assert_never, final

from perdure.errors import MqttError, UsageError
from perdure.limits import PACKET_ID_MAX, REMAINING_LENGTH_MAX
from perdure.model import Will
from perdure.mqtt import reason_codes
from perdure.mqtt.client_auth import Authenticator as Authenticator
from perdure.mqtt.client_auth import ClientAuth
from perdure.mqtt.client_events import (
    ClientEvent,
    Connected,
    Disconnected,
    Failed,
    Ponged,
    Reauthenticated,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)
from perdure.mqtt.client_inbox import NEW, REPEATED, Inbox
from perdure.mqtt.client_outbox import Outbox
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import (
    EMPTY,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
)
from perdure.mqtt.primitives import text
from perdure.mqtt.puback_run import PubackRun

IDLE: Final = 0
"""No connection."""
CONNECTING: Final = 1
"""CONNECT was sent."""
CONNECTED: Final = 2
"""CONNACK came: messages may flow."""

_PACKET_SIZE_MAX: Final = REMAINING_LENGTH_MAX + 5


@final
class ClientProtocol:
    """One client, over as many connections as it needs.

    Args:
        version: 4 or 5.
        client_id: empty = the server assigns one.
        clean_start: start without the old session.
        keep_alive: seconds, 0 = none.
        username, password: credentials.
        will: the Will Message.
        properties: of CONNECT; our receive maximum, packet size and topic aliases are in here.
        authenticator: enhanced authentication, or None.
        manual_acks: the caller acknowledges each message with ``ack``.
        inflight_max: our own bound on unacknowledged messages.
        topic_aliases: assign aliases to topics where the server allows it.

    Attributes:
        state: IDLE, CONNECTING or CONNECTED.
        client_id: as given, or as the server assigned it.
        keep_alive: as given, or as the server wants it.
        server: the properties of the last CONNACK.
    """

    __slots__ = (
        "_auth",
        "_clean_start",
        "_decoder",
        "_events",
        "_inbox",
        "_manual_acks",
        "_outbox",
        "_password",
        "_properties",
        "_requested_keep_alive",
        "_username",
        "_will",
        "client_id",
        "keep_alive",
        "server",
        "state",
        "version",
    )

    def __init__(
        self,
        version: int = V5,
        client_id: str = "",
        *,
        clean_start: bool = True,
        keep_alive: int = 60,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties = EMPTY,
        authenticator: Authenticator | None = None,
        manual_acks: bool = False,
        inflight_max: int = PACKET_ID_MAX,
        topic_aliases: bool = False,
    ) -> None:
        self.version: int = version
        self.client_id: str = client_id
        self.keep_alive: int = keep_alive
        self.state: int = IDLE
        self.server: Properties = EMPTY
        self._requested_keep_alive: int = keep_alive
        self._clean_start: bool = clean_start
        self._username: str | None = username
        self._password: bytes | None = password
        self._will: Will | None = will
        self._properties: Properties = properties
        self._auth: ClientAuth = ClientAuth(authenticator)
        self._manual_acks: bool = manual_acks
        self._outbox: Outbox = Outbox(version, inflight_max, topic_aliases=topic_aliases)
        self._inbox: Inbox = Inbox(properties.receive_maximum, properties.topic_alias_maximum)
        self._events: list[ClientEvent] = []
        self._decoder: Decoder = self._new_decoder()

    @property
    def unsettled_count(self) -> int:
        """Messages given to ``publish`` that no ``Published`` has reported yet."""
        return self._outbox.window.unsettled_count

    def connect(self, *, clean_start: bool | None = None) -> None:
        """Begin on a new transport.

        Args:
            clean_start: instead of what was given at first, from now on.
        """
        if self.state != IDLE:
            raise UsageError("there is a connection already")
        if clean_start is not None:
            self._clean_start = clean_start
        self._decoder = self._new_decoder()
        self._outbox.clear()
        self.keep_alive = self._requested_keep_alive
        self.state = CONNECTING
        self._outbox.send(
            Connect(
                self.version,
                self._clean_start,
                self.keep_alive,
                self.client_id,
                self._username,
                self._password,
                self._will,
                self._auth.begin(self._properties),
            )
        )

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = EMPTY,
    ) -> int:
        """Publish a message.

        With QoS 1 or 2 it waits for a connection and for a place in the window, if it must.

        Returns:
            The handle that ``Published`` will name; 0 with QoS 0.

        Raises:
            MqttError: the server said that it does not take such a message.
            UsageError: the topic is not a topic name; or QoS 0 without a connection.
        """
        text(topic)
        if not topic or "+" in topic or "#" in topic or not 0 <= qos <= 2:
            raise UsageError("a message needs a topic name without wildcards, and QoS 0, 1 or 2")
        publish = Publish(topic, payload, qos, retain)
        if properties is not EMPTY:
            publish.forward = forward_properties(properties)
            expiry_s = properties.message_expiry_interval
            publish.expiry_s = -1 if expiry_s is None else expiry_s
        if self.state == CONNECTED:
            self._outbox.check_allowed(publish)
        if qos:
            handle = self._outbox.window.offer(publish)
            self._events += self._outbox.pump(is_connected=self.state == CONNECTED)
            return handle
        self._require_connected()
        self._outbox.send_publish(publish)
        return 0

    def subscribe(self, filters: list[SubscribeFilter], properties: Properties = EMPTY) -> int:
        """Subscribe; ``Subscribed`` will name the packet identifier returned."""
        self._require_connected()
        packet_id = self._outbox.window.request_id()
        self._outbox.send(Subscribe(packet_id, filters, properties))
        return packet_id

    def unsubscribe(self, filters: list[str], properties: Properties = EMPTY) -> int:
        """Unsubscribe; ``Unsubscribed`` will name the packet identifier returned."""
        self._require_connected()
        packet_id = self._outbox.window.request_id()
        self._outbox.send(Unsubscribe(packet_id, filters, properties))
        return packet_id

    def ack(self, publish: Publish, reason: int = 0) -> bool:
        """Acknowledge a message where acknowledgements are manual.

        Returns:
            False if there is nothing to acknowledge, for instance because the connection on
            which the message came is gone: the server will send it again.
        """
        if self.state != CONNECTED or not self._inbox.settle(publish, reason):
            return False
        kind = PUBACK if publish.qos == 1 else PUBREC
        self._outbox.ack(kind, publish.packet_id, reason)
        return True

    def ping(self) -> None:
        """Send PINGREQ."""
        self._require_connected()
        self._outbox.send(Pingreq())

    def reauthenticate(self) -> None:
        """Start an authentication on a running connection (5.0, section 4.12.1)."""
        self._require_connected()
        self._outbox.send(self._auth.begin_again())

    def disconnect(self, reason: int = 0, properties: Properties = EMPTY) -> None:
        """Say goodbye; the shell then closes the transport."""
        if self.state == IDLE:
            return
        # Allowed before CONNACK too: a client need not wait for it (section 3.1.4).
        self._outbox.send(Disconnect(reason, properties))
        self._closed()

    def connection_lost(self) -> None:
        """The transport is gone; messages wait for the next ``connect``."""
        self._outbox.clear()
        self._closed()

    def data_to_send(self) -> bytes:
        """What to write to the transport now; empty if there is nothing."""
        return self._outbox.take()

    def receive(self, data: bytes) -> list[ClientEvent]:
        """Take what the server sent."""
        if self.state != IDLE:
            try:
                for packet in self._decoder.feed(data):
                    self._handle(packet)
                    if self.state == IDLE:
                        break
                else:
                    if self._decoder.failure is not None:
                        raise self._decoder.failure
                self._events += self._outbox.pump(is_connected=self.state == CONNECTED)
            except MqttError as error:
                self._fail(error)
        events = self._events
        self._events = []
        return events

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            self._on_connack(packet)
        elif isinstance(packet, Auth):
            self._on_auth(packet)
        elif self.state != CONNECTED and not isinstance(packet, Disconnect):
            # [MQTT-3.2.0-1]
            raise ProtocolViolation("the server's first packet is not CONNACK")
        elif isinstance(packet, Publish):
            self._on_publish(packet)
        elif isinstance(packet, Ack):
            if packet.kind == PUBREL:
                reason = self._inbox.release(packet.packet_id)
                self._outbox.ack(PUBCOMP, packet.packet_id, reason)
            elif (published := self._outbox.on_ack(packet)) is not None:
                self._events.append(published)
        elif isinstance(packet, Suback):
            if self._outbox.window.answered(packet.packet_id):
                self._events.append(Subscribed(packet.packet_id, packet.reasons, packet.properties))
        elif isinstance(packet, Unsuback):
            if self._outbox.window.answered(packet.packet_id):
                self._events.append(
                    Unsubscribed(packet.packet_id, packet.reasons, packet.properties)
                )
        elif isinstance(packet, Pingresp):
            self._events.append(Ponged())
        elif isinstance(packet, Disconnect):
            text = reason_codes.name(packet.reason)
            self._events.append(Disconnected(packet.reason, text, packet.properties))
            self._closed()
        elif isinstance(packet, Connect | Subscribe | Unsubscribe | Pingreq | PubackRun):
            raise UsageError("the decoder of a client returned a client's packet")
        else:
            assert_never(packet)

    def _on_connack(self, packet: Connack) -> None:
        if self.state == CONNECTED:
            raise ProtocolViolation("a second CONNACK")
        properties = packet.properties
        if packet.reason:
            text = reason_codes.name(packet.reason)
            if self.version != V5:
                text = reason_codes.RETURN_CODES_311[packet.reason]
            self._events.append(Refused(packet.reason, text, properties))
            self._closed()
            return
        if self._clean_start and packet.session_present:
            # [MQTT-3.2.2-2]
            raise ProtocolViolation("the server has a session despite clean start")
        self._auth.finish(properties)
        self.state = CONNECTED
        self.server = properties
        if properties.assigned_client_identifier is not None:
            self.client_id = properties.assigned_client_identifier
        if properties.server_keep_alive is not None:
            self.keep_alive = properties.server_keep_alive  # [MQTT-3.1.2-21]
        self._inbox.open(session_present=packet.session_present)
        self._events.append(Connected(packet.session_present, properties))
        self._events += self._outbox.open(properties, session_present=packet.session_present)

    def _on_auth(self, packet: Auth) -> None:
        answer = self._auth.answer(packet, is_connected=self.state == CONNECTED)
        if answer is None:
            self._events.append(Reauthenticated(packet.properties))
        else:
            self._outbox.send(answer)

    def _on_publish(self, packet: Publish) -> None:
        verdict = self._inbox.take(packet)
        if verdict == NEW:
            self._events.append(Received(packet))
            if packet.qos and not self._manual_acks:
                self.ack(packet)
        elif verdict == REPEATED:
            self._outbox.ack(PUBREC, packet.packet_id)

    def _new_decoder(self) -> Decoder:
        return Decoder(
            server_side=False,
            packet_size_max=self._properties.maximum_packet_size or _PACKET_SIZE_MAX,
            version=self.version,
        )

    def _require_connected(self) -> None:
        if self.state != CONNECTED:
            raise UsageError("there is no connection")

    def _fail(self, error: MqttError) -> None:
        self._events.append(Failed(error))
        if self.version == V5 and self.state != IDLE:
            code = error.reason_code
            if not reason_codes.may_carry(code, Disconnect.kind):
                code = reason_codes.PROTOCOL_ERROR
            self._outbox.send(Disconnect(code))
        self._closed()

    def _closed(self) -> None:
        self.state = IDLE
        self._inbox.close()
        self._outbox.window.close()
