"""What a client is told when its connection ends, as far as its version has a word for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.mqtt import reason_codes
from perdure.mqtt.packets import EMPTY, V5, V311, Connack, Disconnect, Properties

if TYPE_CHECKING:
    from perdure.broker.delivery.sender import Sender
    from perdure.mqtt.decode import Decoder
    from perdure.observe.metrics import Metrics

RETURN_CODE_OF: Final = {
    reason_codes.UNSUPPORTED_PROTOCOL_VERSION: 1,
    reason_codes.CLIENT_IDENTIFIER_NOT_VALID: 2,
    reason_codes.SERVER_UNAVAILABLE: 3,
    reason_codes.SERVER_BUSY: 3,
    reason_codes.QUOTA_EXCEEDED: 3,
    reason_codes.CONNECTION_RATE_EXCEEDED: 3,
    reason_codes.BAD_USERNAME_OR_PASSWORD: 4,
    reason_codes.BAD_AUTHENTICATION_METHOD: 4,
    reason_codes.NOT_AUTHORIZED: 5,
    reason_codes.BANNED: 5,
}
"""3.1.1 has return codes 1 to 5 only (3.2.2.3)."""


def send_disconnect(
    sender: Sender, reason_code: int, reason: str, server_reference: str = ""
) -> None:
    """DISCONNECT, which a server sends in 5.0 only.

    Args:
        sender: to whom.
        reason_code: why.
        reason: the same for people; empty = not told.
        server_reference: where the client shall go; empty = nowhere.
    """
    if sender.version < V5:
        return
    if server_reference:
        properties = Properties(server_reference=server_reference, reason_string=reason or None)
    else:
        properties = _properties(reason)
    sender.packet(Disconnect(reason_code, properties))


def refuse(sender: Sender, metrics: Metrics, reason_code: int, reason: str) -> None:
    """CONNACK with a reason code, or nothing where CONNACK has no word for it.

    Args:
        sender: to whom.
        metrics: counts it.
        reason_code: why.
        reason: the same for people; empty = not told.
    """
    if not sender.version or reason_code < 0x80:
        return
    if not reason_codes.may_carry(reason_code, Connack.kind):
        # Some codes are for DISCONNECT alone: one that is taken over before its CONNACK is just
        # closed.
        return
    metrics.connack_sent[reason_code] += 1
    if sender.version >= V5:
        sender.packet(Connack(False, reason_code, _properties(reason)))
        return
    code = RETURN_CODE_OF.get(reason_code, 0)
    if code:
        sender.packet(Connack(False, code, EMPTY))


def version_of_refusal(decoder: Decoder, reason_code: int) -> int:
    """The version in which a bad CONNECT is answered; 0 = closed without an answer."""
    if decoder.version or reason_code != reason_codes.UNSUPPORTED_PROTOCOL_VERSION:
        return decoder.version
    if not decoder.protocol_name_ok:
        # 5.0 lets us answer 0x84; 3.1.1 has no code for another protocol [MQTT-3.1.2-1].
        return V5 if decoder.protocol_level == V5 else 0
    # [MQTT-3.1.2-2] of 3.1.1 demands return code 1, which clients of every level can read.
    return V311


def _properties(reason: str) -> Properties:
    return Properties(reason_string=reason) if reason else EMPTY
