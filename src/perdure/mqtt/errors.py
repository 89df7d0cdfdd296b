"""What a peer does against the protocol, whichever packet it is in."""

from __future__ import annotations

from typing import final

from perdure.errors import MqttError
from perdure.mqtt.reason_codes import MALFORMED_PACKET, PROTOCOL_ERROR


@final
class MalformedPacket(MqttError):
    """Bytes that are not an MQTT packet."""

    code = "malformed_packet"

    def __init__(self, message: str = "") -> None:
        super().__init__(MALFORMED_PACKET, message)


@final
class ProtocolViolation(MqttError):
    """A well-formed packet that the protocol forbids here."""

    code = "protocol_violation"

    def __init__(self, message: str = "") -> None:
        super().__init__(PROTOCOL_ERROR, message)
