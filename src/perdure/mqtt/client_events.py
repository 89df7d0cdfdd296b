"""What happened to a client, as ``ClientProtocol.receive`` returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

from perdure.errors import MqttError
from perdure.mqtt.packets import Properties, Publish


@final
@dataclass(frozen=True, slots=True)
class Connected:
    """The server took the connection.

    Attributes:
        session_present: it still had the session.
        properties: what it allows.
    """

    session_present: bool
    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """The server refused the connection; it closes it now.

    Attributes:
        reason: reason code of 5.0, return code of 3.1.1.
        text: what the code means.
        properties: with the server's own reason, perhaps.
    """

    reason: int
    text: str
    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived, its topic alias resolved.

    Attributes:
        publish: to be handed to ``ClientProtocol.ack`` where acknowledgements are manual.
    """

    publish: Publish


@final
@dataclass(frozen=True, slots=True)
class Published:
    """A message of QoS 1 or 2 is settled.

    Attributes:
        handle: what ``ClientProtocol.publish`` returned.
        reason: 0x80 and above: the message was refused.
        properties: of the acknowledgement.
    """

    handle: int
    reason: int
    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Subscribed:
    """The answer to a SUBSCRIBE, one reason for each filter."""

    packet_id: int
    reasons: list[int]
    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The answer to an UNSUBSCRIBE, one reason for each filter (3.1.1: none)."""

    packet_id: int
    reasons: list[int]
    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Ponged:
    """The answer to a PINGREQ."""


@final
@dataclass(frozen=True, slots=True)
class Reauthenticated:
    """The server took the re-authentication."""

    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Disconnected:
    """The server ended the connection and said why (5.0)."""

    reason: int
    text: str
    properties: Properties


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """The server broke the protocol; send what ``data_to_send`` has, then close."""

    error: MqttError


ClientEvent: TypeAlias = (
    Connected
    | Refused
    | Received
    | Published
    | Subscribed
    | Unsubscribed
    | Ponged
    | Reauthenticated
    | Disconnected
    | Failed
)
