"""The control packets of MQTT 3.1.1 and 5.0, as plain values.

This room knows what a packet holds. It does not know bytes (``decode``, ``encode``), sessions or
sockets. Invariant: a packet that came out of ``decode`` obeys every rule of the specification
that can be seen from one packet alone.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias, final

from mypy_extensions import mypyc_attr

from perdure.model import Will
from perdure.mqtt.property_values import EMPTY as EMPTY
from perdure.mqtt.property_values import Properties as Properties
from perdure.mqtt.property_values import Value
from perdure.mqtt.puback_run import PubackRun

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

KIND_NAMES: Final = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

V311: Final = 4
"""Protocol level of MQTT 3.1.1."""
V5: Final = 5
"""Protocol level of MQTT 5.0."""


@final
class Connect(Value):
    """CONNECT.

    Attributes:
        protocol: 4 (3.1.1) or 5 (5.0).
        clean_start: Clean Start, in 3.1.1 Clean Session.
        keep_alive: seconds, 0 = none.
        will: the Will Message with its own properties, or None.
        properties: those of CONNECT alone.
    """

    __slots__ = (
        "clean_start",
        "client_id",
        "keep_alive",
        "password",
        "properties",
        "protocol",
        "username",
        "will",
    )
    kind: ClassVar[int] = CONNECT

    def __init__(
        self,
        protocol: int,
        clean_start: bool,
        keep_alive: int,
        client_id: str,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties = EMPTY,
    ) -> None:
        self.protocol: int = protocol
        self.clean_start: bool = clean_start
        self.keep_alive: int = keep_alive
        self.client_id: str = client_id
        self.username: str | None = username
        self.password: bytes | None = password
        self.will: Will | None = will
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (
            self.protocol,
            self.clean_start,
            self.keep_alive,
            self.client_id,
            self.username,
            self.password,
            self.will,
            self.properties,
        )

    def __repr__(self) -> str:
        password = None if self.password is None else "***"
        return (
            f"Connect({self.protocol}, {self.clean_start}, {self.keep_alive}, {self.client_id!r}, "
            f"{self.username!r}, {password}, {self.will!r}, {self.properties!r})"
        )


@final
class Connack(Value):
    """CONNACK; in 3.1.1 ``reason`` is the return code 0 to 5."""

    __slots__ = ("properties", "reason", "session_present")
    kind: ClassVar[int] = CONNACK

    def __init__(
        self, session_present: bool, reason: int = 0, properties: Properties = EMPTY
    ) -> None:
        self.session_present: bool = session_present
        self.reason: int = reason
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.session_present, self.reason, self.properties)


@final
@mypyc_attr(acyclic=True)
class Publish(Value):
    """PUBLISH, without a ``Properties`` object: it is the hot path.

    Attributes:
        topic: empty only together with a topic alias.
        packet_id: 0 with QoS 0.
        topic_alias: 0 = none.
        expiry_s: Message Expiry Interval, seconds; -1 = none.
        forward: the properties that a server forwards unaltered (payload format, content type,
            response topic, correlation data, user properties), in wire form, in the order
            received, without the length prefix (``encode.properties_from_forward`` reads it).
        identifiers: subscription identifiers (server to client only).
    """

    __slots__ = (
        "dup",
        "expiry_s",
        "forward",
        "identifiers",
        "packet_id",
        "payload",
        "qos",
        "retain",
        "topic",
        "topic_alias",
    )
    kind: ClassVar[int] = PUBLISH

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        topic_alias: int = 0,
        expiry_s: int = -1,
        forward: bytes = b"",
        identifiers: tuple[int, ...] = (),
    ) -> None:
        self.topic: str = topic
        self.payload: bytes = payload
        self.qos: int = qos
        self.retain: bool = retain
        self.dup: bool = dup
        self.packet_id: int = packet_id
        self.topic_alias: int = topic_alias
        self.expiry_s: int = expiry_s
        self.forward: bytes = forward
        self.identifiers: tuple[int, ...] = identifiers

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.dup,
            self.packet_id,
            self.topic_alias,
            self.expiry_s,
            self.forward,
            self.identifiers,
        )


@final
@mypyc_attr(acyclic=True)
class Ack(Value):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as ``kind`` says."""

    __slots__ = ("kind", "packet_id", "properties", "reason")

    def __init__(
        self, kind: int, packet_id: int, reason: int = 0, properties: Properties | None = None
    ) -> None:
        self.kind: int = kind
        self.packet_id: int = packet_id
        self.reason: int = reason
        self.properties: Properties | None = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.kind, self.packet_id, self.reason, self.properties)


@final
class SubscribeFilter(Value):
    """One topic filter of SUBSCRIBE with its options; the filter's form is not checked here."""

    __slots__ = ("filter", "no_local", "qos", "retain_as_published", "retain_handling")

    def __init__(
        self,
        filter: str,  # noqa: A002 - the specification's word
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.filter: str = filter
        self.qos: int = qos
        self.no_local: bool = no_local
        self.retain_as_published: bool = retain_as_published
        self.retain_handling: int = retain_handling

    def _fields(self) -> tuple[object, ...]:
        return (
            self.filter,
            self.qos,
            self.no_local,
            self.retain_as_published,
            self.retain_handling,
        )


@final
class Subscribe(Value):
    """SUBSCRIBE."""

    __slots__ = ("filters", "packet_id", "properties")
    kind: ClassVar[int] = SUBSCRIBE

    def __init__(
        self, packet_id: int, filters: list[SubscribeFilter], properties: Properties = EMPTY
    ) -> None:
        self.packet_id: int = packet_id
        self.filters: list[SubscribeFilter] = filters
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.filters, self.properties)


@final
class Suback(Value):
    """SUBACK; in 3.1.1 the reasons are 0, 1, 2 and 0x80."""

    __slots__ = ("packet_id", "properties", "reasons")
    kind: ClassVar[int] = SUBACK

    def __init__(self, packet_id: int, reasons: list[int], properties: Properties = EMPTY) -> None:
        self.packet_id: int = packet_id
        self.reasons: list[int] = reasons
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reasons, self.properties)


@final
class Unsubscribe(Value):
    """UNSUBSCRIBE."""

    __slots__ = ("filters", "packet_id", "properties")
    kind: ClassVar[int] = UNSUBSCRIBE

    def __init__(self, packet_id: int, filters: list[str], properties: Properties = EMPTY) -> None:
        self.packet_id: int = packet_id
        self.filters: list[str] = filters
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.filters, self.properties)


@final
class Unsuback(Value):
    """UNSUBACK; 3.1.1 has no reasons on the wire."""

    __slots__ = ("packet_id", "properties", "reasons")
    kind: ClassVar[int] = UNSUBACK

    def __init__(self, packet_id: int, reasons: list[int], properties: Properties = EMPTY) -> None:
        self.packet_id: int = packet_id
        self.reasons: list[int] = reasons
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reasons, self.properties)


@final
class Pingreq(Value):
    """PINGREQ."""

    __slots__ = ()
    kind: ClassVar[int] = PINGREQ

    def _fields(self) -> tuple[object, ...]:
        return ()


@final
class Pingresp(Value):
    """PINGRESP."""

    __slots__ = ()
    kind: ClassVar[int] = PINGRESP

    def _fields(self) -> tuple[object, ...]:
        return ()


@final
class Disconnect(Value):
    """DISCONNECT; 3.1.1 has neither reason nor properties on the wire."""

    __slots__ = ("properties", "reason")
    kind: ClassVar[int] = DISCONNECT

    def __init__(self, reason: int = 0, properties: Properties = EMPTY) -> None:
        self.reason: int = reason
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.reason, self.properties)


@final
class Auth(Value):
    """AUTH (5.0 only)."""

    __slots__ = ("properties", "reason")
    kind: ClassVar[int] = AUTH

    def __init__(self, reason: int = 0, properties: Properties = EMPTY) -> None:
        self.reason: int = reason
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.reason, self.properties)


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
    | PubackRun
)
