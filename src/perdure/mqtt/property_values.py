"""The properties of MQTT 5.0 as a plain value; ``packets`` has them from here.

``properties`` reads and writes them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

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
class Value:
    """Equality and a readable form from ``_fields``; values are not hashable."""

    __slots__ = ()

    @abstractmethod
    def _fields(self) -> tuple[object, ...]:
        """The attributes, in the order of the constructor."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(self) is not type(other):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._fields()!r}"


@final
class Properties(Value):
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
        """A copy that may be changed."""
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
