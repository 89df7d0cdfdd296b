"""The control packets of MQTT 3.1.1 and 5.0, as plain values.

This room knows what a packet holds. It does not know bytes (``decode``, ``encode``), sessions or
sockets. Invariant: a packet that came out of ``decode`` obeys every rule of the specification
that can be seen from one packet alone.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final, TypeAlias, final

from mypy_extensions import mypyc_attr

from perdure.model import Will

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


PROPERTY_NAMES: Final = (
    "assigned_client_identifier",
    "authentication_data",
    "authentication_method",
    "content_type",
    "correlation_data",
    "maximum_packet_size",
    "maximum_qos",
    "message_expiry_interval",
    "payload_format_indicator",
    "reason_string",
    "receive_maximum",
    "request_problem_information",
    "request_response_information",
    "response_information",
    "response_topic",
    "retain_available",
    "server_keep_alive",
    "server_reference",
    "session_expiry_interval",
    "shared_subscription_available",
    "subscription_identifier_available",
    "subscription_identifiers",
    "topic_alias",
    "topic_alias_maximum",
    "user_properties",
    "wildcard_subscription_available",
    "will_delay_interval",
)
"""The attributes of ``Properties``."""


@mypyc_attr(acyclic=True)
class _Value:
    """Equality and a readable form from ``_fields``; values are not hashable."""

    __slots__ = ()

    @abstractmethod
    def _fields(self) -> tuple[object, ...]:
        """The attributes, in the order of the constructor."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Value) or type(self) is not type(other):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._fields()!r}"


@final
class Properties(_Value):
    """Every property of MQTT 5.0 (section 2.2.2.2); None or an empty tuple when absent."""

    __slots__ = PROPERTY_NAMES

    def __init__(
        self,
        *,
        payload_format_indicator: int | None = None,
        message_expiry_interval: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        subscription_identifiers: tuple[int, ...] = (),
        session_expiry_interval: int | None = None,
        assigned_client_identifier: str | None = None,
        server_keep_alive: int | None = None,
        authentication_method: str | None = None,
        authentication_data: bytes | None = None,
        request_problem_information: int | None = None,
        will_delay_interval: int | None = None,
        request_response_information: int | None = None,
        response_information: str | None = None,
        server_reference: str | None = None,
        reason_string: str | None = None,
        receive_maximum: int | None = None,
        topic_alias_maximum: int | None = None,
        topic_alias: int | None = None,
        maximum_qos: int | None = None,
        retain_available: int | None = None,
        user_properties: tuple[tuple[str, str], ...] = (),
        maximum_packet_size: int | None = None,
        wildcard_subscription_available: int | None = None,
        subscription_identifier_available: int | None = None,
        shared_subscription_available: int | None = None,
    ) -> None:
        self.payload_format_indicator: int | None = payload_format_indicator
        self.message_expiry_interval: int | None = message_expiry_interval
        self.content_type: str | None = content_type
        self.response_topic: str | None = response_topic
        self.correlation_data: bytes | None = correlation_data
        self.subscription_identifiers: tuple[int, ...] = subscription_identifiers
        self.session_expiry_interval: int | None = session_expiry_interval
        self.assigned_client_identifier: str | None = assigned_client_identifier
        self.server_keep_alive: int | None = server_keep_alive
        self.authentication_method: str | None = authentication_method
        self.authentication_data: bytes | None = authentication_data
        self.request_problem_information: int | None = request_problem_information
        self.will_delay_interval: int | None = will_delay_interval
        self.request_response_information: int | None = request_response_information
        self.response_information: str | None = response_information
        self.server_reference: str | None = server_reference
        self.reason_string: str | None = reason_string
        self.receive_maximum: int | None = receive_maximum
        self.topic_alias_maximum: int | None = topic_alias_maximum
        self.topic_alias: int | None = topic_alias
        self.maximum_qos: int | None = maximum_qos
        self.retain_available: int | None = retain_available
        self.user_properties: tuple[tuple[str, str], ...] = user_properties
        self.maximum_packet_size: int | None = maximum_packet_size
        self.wildcard_subscription_available: int | None = wildcard_subscription_available
        self.subscription_identifier_available: int | None = subscription_identifier_available
        self.shared_subscription_available: int | None = shared_subscription_available

    def copy(self) -> Properties:
        """The same properties, to be changed."""
        copy = Properties()
        for name in PROPERTY_NAMES:
            setattr(copy, name, getattr(self, name))
        return copy

    def present(self) -> dict[str, object]:
        """The properties that are there, by name, in alphabetical order."""
        values: dict[str, object] = {name: getattr(self, name) for name in PROPERTY_NAMES}
        return {name: value for name, value in values.items() if value is not None and value != ()}

    def _fields(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in PROPERTY_NAMES])

    def __repr__(self) -> str:
        return f"Properties({', '.join(f'{name}={v!r}' for name, v in self.present().items())})"


EMPTY: Final = Properties()
"""No properties: one instance for all packets that have none. Never change it."""


@final
class Connect(_Value):
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
class Connack(_Value):
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
class Publish(_Value):
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
class Ack(_Value):
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
class SubscribeFilter(_Value):
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
class Subscribe(_Value):
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
class Suback(_Value):
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
class Unsubscribe(_Value):
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
class Unsuback(_Value):
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
class Pingreq(_Value):
    """PINGREQ."""

    __slots__ = ()
    kind: ClassVar[int] = PINGREQ

    def _fields(self) -> tuple[object, ...]:
        return ()


@final
class Pingresp(_Value):
    """PINGRESP."""

    __slots__ = ()
    kind: ClassVar[int] = PINGRESP

    def _fields(self) -> tuple[object, ...]:
        return ()


@final
class Disconnect(_Value):
    """DISCONNECT; 3.1.1 has neither reason nor properties on the wire."""

    __slots__ = ("properties", "reason")
    kind: ClassVar[int] = DISCONNECT

    def __init__(self, reason: int = 0, properties: Properties = EMPTY) -> None:
        self.reason: int = reason
        self.properties: Properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.reason, self.properties)


@final
class Auth(_Value):
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
)
