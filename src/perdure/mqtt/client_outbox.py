"""What a client sends: packets in wire form, and messages as the server's window lets them out."""

from __future__ import annotations

from typing import final

from perdure.errors import MqttError
from perdure.limits import PACKET_ID_MAX
from perdure.mqtt import reason_codes
from perdure.mqtt.aliases import OutboundAliases
from perdure.mqtt.client_events import Published
from perdure.mqtt.client_window import SendWindow, check_allowed, size_bound
from perdure.mqtt.encode import ack_bytes, encode
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import (
    EMPTY,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    Ack,
    Packet,
    Properties,
    Publish,
)


@final
class Outbox:
    """The sending side of one client, over as many connections as it needs.

    Args:
        version: 4 or 5.
        inflight_max: our own bound on unacknowledged messages.
        topic_aliases: assign aliases to topics where the server allows it.

    Attributes:
        window: messages that are not acknowledged.
    """

    __slots__ = ("_aliases", "_out", "_server", "_topic_aliases", "_version", "window")

    def __init__(self, version: int, inflight_max: int, *, topic_aliases: bool) -> None:
        self.window: SendWindow = SendWindow(inflight_max)
        self._version: int = version
        self._topic_aliases: bool = topic_aliases and version == V5
        self._aliases: OutboundAliases = OutboundAliases(0)
        self._server: Properties = EMPTY
        self._out: list[bytes] = []

    def open(self, server: Properties, *, session_present: bool) -> list[Published]:
        """The server has answered with these properties.

        Returns:
            The messages that it had already, as its session is gone or not.
        """
        self._server = server
        self._aliases = OutboundAliases(server.topic_alias_maximum or 0)
        handles = self.window.open(
            session_present=session_present, receive_maximum=server.receive_maximum or PACKET_ID_MAX
        )
        return [Published(handle, reason_codes.SUCCESS, EMPTY) for handle in handles]

    def take(self) -> bytes:
        """What to write to the transport now."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def clear(self) -> None:
        """Forget what was not written."""
        self._out.clear()

    def send(self, packet: Packet) -> None:
        """Send a packet."""
        self._out.append(encode(packet, self._version))

    def ack(self, kind: int, packet_id: int, reason: int = 0) -> None:
        """Send an acknowledgement."""
        self._out.append(ack_bytes(kind, packet_id, reason, self._version))

    def check_allowed(self, publish: Publish) -> None:
        """Raise ``MqttError`` if the server has said that it does not take such a message."""
        check_allowed(publish, self._server, self._version)

    def send_publish(self, publish: Publish) -> None:
        """Send a message, by its alias where it has one."""
        limit = self._server.maximum_packet_size
        # Near the server's limit the alias, which may add five bytes, is left out.
        if self._topic_aliases and (limit is None or size_bound(publish) <= limit):
            topic = publish.topic
            publish.topic_alias, omit_topic = self._aliases.assign(topic)
            if omit_topic:
                publish.topic = ""
            self.send(publish)
            publish.topic = topic
            publish.topic_alias = 0
        else:
            self.send(publish)

    def pump(self, *, is_connected: bool) -> list[Published]:
        """Send what the window lets out; what the server does not take is reported."""
        refused: list[Published] = []
        while is_connected:
            entry = self.window.take()
            if entry is None:
                break
            if entry.released:
                self.ack(PUBREL, entry.publish.packet_id)
                continue
            try:
                self.check_allowed(entry.publish)
            except MqttError as error:
                # It was taken before this server said what it does not take.
                self.window.settle(entry)
                reason = Properties(reason_string=error.message)
                refused.append(Published(entry.handle, error.reason_code, reason))
                continue
            self.send_publish(entry.publish)
        return refused

    def on_ack(self, packet: Ack) -> Published | None:
        """Take PUBACK, PUBREC or PUBCOMP; what it settles."""
        packet_id = packet.packet_id
        entry = self.window.find(packet_id)
        if entry is None:
            if packet.kind == PUBREC:
                self.ack(PUBREL, packet_id, reason_codes.PACKET_IDENTIFIER_NOT_FOUND)
            return None
        if (packet.kind == PUBACK) != (entry.publish.qos == 1):
            raise ProtocolViolation("an acknowledgement of the other QoS")
        if packet.kind == PUBREC and packet.reason < reason_codes.UNSPECIFIED_ERROR:
            self.window.release(entry)
            self.ack(PUBREL, packet_id)
            return None
        if packet.kind == PUBCOMP and not entry.released:
            raise ProtocolViolation("PUBCOMP before PUBREC")
        self.window.settle(entry)
        return Published(entry.handle, packet.reason, packet.properties or EMPTY)
