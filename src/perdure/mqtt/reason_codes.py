"""Reason codes of MQTT 5.0 (section 2.4) and return codes of 3.1.1, as one table.

The table says which packet may carry which code, and in which direction where the specification
restricts it; ``decode`` refuses the rest.
"""

from __future__ import annotations

from typing import Final

from perdure.mqtt import packets as p

SUCCESS: Final = 0x00
NORMAL_DISCONNECTION: Final = 0x00
GRANTED_QOS_0: Final = 0x00
GRANTED_QOS_1: Final = 0x01
GRANTED_QOS_2: Final = 0x02
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USERNAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_IN_USE: Final = 0x91
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

_PUB: Final = (p.PUBACK, p.PUBREC)
_REL: Final = (p.PUBREL, p.PUBCOMP)
_SUB: Final = (p.SUBACK, p.UNSUBACK)

TABLE: Final[tuple[tuple[int, str, tuple[int, ...]], ...]] = (
    (SUCCESS, "Success", (p.CONNACK, *_PUB, *_REL, p.SUBACK, p.UNSUBACK, p.DISCONNECT, p.AUTH)),
    (GRANTED_QOS_1, "Granted QoS 1", (p.SUBACK,)),
    (GRANTED_QOS_2, "Granted QoS 2", (p.SUBACK,)),
    (DISCONNECT_WITH_WILL, "Disconnect with Will Message", (p.DISCONNECT,)),
    (NO_MATCHING_SUBSCRIBERS, "No matching subscribers", _PUB),
    (NO_SUBSCRIPTION_EXISTED, "No subscription existed", (p.UNSUBACK,)),
    (CONTINUE_AUTHENTICATION, "Continue authentication", (p.AUTH,)),
    (REAUTHENTICATE, "Re-authenticate", (p.AUTH,)),
    (UNSPECIFIED_ERROR, "Unspecified error", (p.CONNACK, *_PUB, *_SUB, p.DISCONNECT)),
    (MALFORMED_PACKET, "Malformed packet", (p.CONNACK, p.DISCONNECT)),
    (PROTOCOL_ERROR, "Protocol error", (p.CONNACK, p.DISCONNECT)),
    (
        IMPLEMENTATION_SPECIFIC_ERROR,
        "Implementation specific error",
        (p.CONNACK, *_PUB, *_SUB, p.DISCONNECT),
    ),
    (UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", (p.CONNACK,)),
    (CLIENT_IDENTIFIER_NOT_VALID, "Client identifier not valid", (p.CONNACK,)),
    (BAD_USERNAME_OR_PASSWORD, "Bad user name or password", (p.CONNACK,)),
    (NOT_AUTHORIZED, "Not authorized", (p.CONNACK, *_PUB, *_SUB, p.DISCONNECT)),
    (SERVER_UNAVAILABLE, "Server unavailable", (p.CONNACK,)),
    (SERVER_BUSY, "Server busy", (p.CONNACK, p.DISCONNECT)),
    (BANNED, "Banned", (p.CONNACK,)),
    (SERVER_SHUTTING_DOWN, "Server shutting down", (p.DISCONNECT,)),
    (BAD_AUTHENTICATION_METHOD, "Bad authentication method", (p.CONNACK, p.DISCONNECT)),
    (KEEP_ALIVE_TIMEOUT, "Keep alive timeout", (p.DISCONNECT,)),
    (SESSION_TAKEN_OVER, "Session taken over", (p.DISCONNECT,)),
    (TOPIC_FILTER_INVALID, "Topic filter invalid", (*_SUB, p.DISCONNECT)),
    (TOPIC_NAME_INVALID, "Topic name invalid", (p.CONNACK, *_PUB, p.DISCONNECT)),
    (PACKET_IDENTIFIER_IN_USE, "Packet identifier in use", (*_PUB, *_SUB)),
    (PACKET_IDENTIFIER_NOT_FOUND, "Packet identifier not found", _REL),
    (RECEIVE_MAXIMUM_EXCEEDED, "Receive maximum exceeded", (p.DISCONNECT,)),
    (TOPIC_ALIAS_INVALID, "Topic alias invalid", (p.DISCONNECT,)),
    (PACKET_TOO_LARGE, "Packet too large", (p.CONNACK, p.DISCONNECT)),
    (MESSAGE_RATE_TOO_HIGH, "Message rate too high", (p.DISCONNECT,)),
    (QUOTA_EXCEEDED, "Quota exceeded", (p.CONNACK, *_PUB, p.SUBACK, p.DISCONNECT)),
    (ADMINISTRATIVE_ACTION, "Administrative action", (p.DISCONNECT,)),
    (PAYLOAD_FORMAT_INVALID, "Payload format invalid", (p.CONNACK, *_PUB, p.DISCONNECT)),
    (RETAIN_NOT_SUPPORTED, "Retain not supported", (p.CONNACK, p.DISCONNECT)),
    (QOS_NOT_SUPPORTED, "QoS not supported", (p.CONNACK, p.DISCONNECT)),
    (USE_ANOTHER_SERVER, "Use another server", (p.CONNACK, p.DISCONNECT)),
    (SERVER_MOVED, "Server moved", (p.CONNACK, p.DISCONNECT)),
    (
        SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
        "Shared subscriptions not supported",
        (p.SUBACK, p.DISCONNECT),
    ),
    (CONNECTION_RATE_EXCEEDED, "Connection rate exceeded", (p.CONNACK, p.DISCONNECT)),
    (MAXIMUM_CONNECT_TIME, "Maximum connect time", (p.DISCONNECT,)),
    (
        SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
        "Subscription identifiers not supported",
        (p.SUBACK, p.DISCONNECT),
    ),
    (
        WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
        "Wildcard subscriptions not supported",
        (p.SUBACK, p.DISCONNECT),
    ),
)
"""Code, text, packets that may carry it (section 2.4, table 2-6, and the packets' own tables)."""

# The tables of sections 3.14.2.1 and 3.15.2.1 have a column "sent by".
_CLIENT_ONLY: Final = frozenset({(DISCONNECT_WITH_WILL, p.DISCONNECT), (REAUTHENTICATE, p.AUTH)})
_SERVER_ONLY: Final = frozenset(
    {(SUCCESS, p.AUTH)}
    | {
        (code, p.DISCONNECT)
        for code in (
            NOT_AUTHORIZED,
            SERVER_BUSY,
            SERVER_SHUTTING_DOWN,
            BAD_AUTHENTICATION_METHOD,
            KEEP_ALIVE_TIMEOUT,
            SESSION_TAKEN_OVER,
            TOPIC_FILTER_INVALID,
            RETAIN_NOT_SUPPORTED,
            QOS_NOT_SUPPORTED,
            USE_ANOTHER_SERVER,
            SERVER_MOVED,
            SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
            CONNECTION_RATE_EXCEEDED,
            MAXIMUM_CONNECT_TIME,
            SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
            WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
        )
    }
)

RETURN_CODES_311: Final = (
    "Connection accepted",
    "Unacceptable protocol version",
    "Identifier rejected",
    "Server unavailable",
    "Bad user name or password",
    "Not authorized",
)
"""CONNACK of 3.1.1 (section 3.2.2.3)."""

_TEXTS: Final = {code: text for code, text, _ in TABLE}
_ALLOWED: Final = frozenset((code, kind) for code, _, kinds in TABLE for kind in kinds)
FROM_CLIENT: Final = frozenset(
    (code, kind)
    for code, kind in _ALLOWED - _SERVER_ONLY
    if kind not in (p.CONNACK, p.SUBACK, p.UNSUBACK)
)
"""(code, packet) pairs that a client may send."""
FROM_SERVER: Final = _ALLOWED - _CLIENT_ONLY
"""(code, packet) pairs that a server may send."""


def name(code: int, kind: int = 0) -> str:
    """The text of a 5.0 reason code.

    Args:
        code: the reason code.
        kind: packet that carries it: 0x00 reads differently in SUBACK and DISCONNECT.
    """
    if code == SUCCESS:
        if kind == p.DISCONNECT:
            return "Normal disconnection"
        if kind == p.SUBACK:
            return "Granted QoS 0"
    return _TEXTS.get(code, f"Reason code 0x{code:02X}")


def may_carry(code: int, kind: int) -> bool:
    """True if the packet may carry the reason code, in one direction or the other."""
    return (code, kind) in _ALLOWED
