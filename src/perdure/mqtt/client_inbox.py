"""The inbound half of a client's session: acknowledgements owed, QoS 2 identifiers, aliases.

It knows which messages are new and what must be answered; it does not know bytes. Invariant: a
QoS 2 message is handed on once, however often it comes ([MQTT-4.3.3-10]).
"""

from __future__ import annotations

from typing import final

from perdure.errors import MqttError
from perdure.limits import PACKET_ID_MAX
from perdure.mqtt.aliases import InboundAliases
from perdure.mqtt.packets import Publish
from perdure.mqtt.reason_codes import (
    PACKET_IDENTIFIER_NOT_FOUND,
    RECEIVE_MAXIMUM_EXCEEDED,
    SUCCESS,
    UNSPECIFIED_ERROR,
)

NEW = 0
"""Hand it on; it is owed an acknowledgement if its QoS is not 0."""
REPEATED = 1
"""Known and acknowledged before: acknowledge it again."""
WAITING = 2
"""Known, and the caller has still to acknowledge it: do nothing."""


@final
class Inbox:
    """What a client has received and not finished with.

    Args:
        receive_maximum: what we told the server, None = the default of 65,535.
        topic_alias_maximum: what we told the server.
    """

    __slots__ = ("_aliases", "_awaiting_release", "_owed", "_receive_maximum")

    def __init__(self, receive_maximum: int | None, topic_alias_maximum: int | None) -> None:
        self._receive_maximum: int = receive_maximum or PACKET_ID_MAX
        self._aliases: InboundAliases = InboundAliases(topic_alias_maximum or 0)
        # QoS 2 identifiers between PUBLISH and PUBREL: part of the session.
        self._awaiting_release: set[int] = set()
        # What is still to be acknowledged on this connection: identifier -> QoS.
        self._owed: dict[int, int] = {}

    def take(self, publish: Publish) -> int:
        """Judge a message and resolve its topic alias; returns NEW, REPEATED or WAITING.

        Raises:
            MqttError: the alias is not known, or more is unacknowledged than we allowed.
        """
        publish.topic = self._aliases.resolve(publish)
        packet_id = publish.packet_id
        if publish.qos == 0:
            return NEW
        if publish.qos == 2:
            if packet_id in self._awaiting_release:
                return WAITING if packet_id in self._owed else REPEATED
            self._awaiting_release.add(packet_id)
        self._owed[packet_id] = publish.qos
        if len(self._owed) > self._receive_maximum:
            # [MQTT-3.3.4-9]
            raise MqttError(RECEIVE_MAXIMUM_EXCEEDED, "the server ignores our receive maximum")
        return NEW

    def settle(self, publish: Publish, reason: int) -> bool:
        """The caller acknowledges a message; False if none is owed for it."""
        packet_id = publish.packet_id
        if self._owed.get(packet_id) != publish.qos:
            return False
        del self._owed[packet_id]
        if publish.qos == 2 and reason >= UNSPECIFIED_ERROR:
            self._awaiting_release.discard(packet_id)  # a failing PUBREC ends the exchange
        return True

    def release(self, packet_id: int) -> int:
        """PUBREL came; returns the reason code for PUBCOMP."""
        if packet_id not in self._awaiting_release:
            return PACKET_IDENTIFIER_NOT_FOUND
        self._awaiting_release.remove(packet_id)
        return SUCCESS

    def open(self, *, session_present: bool) -> None:
        """A connection was accepted."""
        if not session_present:
            self._awaiting_release.clear()

    def close(self) -> None:
        """The connection is gone: the server sends again what is owed, under its identifiers.

        A QoS 2 message that the caller has had and not acknowledged counts as new when it
        comes again: its PUBREC never went out.
        """
        for packet_id in self._owed:
            self._awaiting_release.discard(packet_id)
        self._owed.clear()
        self._aliases = InboundAliases(self._aliases.maximum)
