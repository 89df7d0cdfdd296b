"""Enhanced authentication (5.0, section 4.12) on the client's side."""

from __future__ import annotations

from typing import Protocol, final

from perdure.errors import UsageError
from perdure.mqtt import reason_codes
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import EMPTY, Auth, Properties


class Authenticator(Protocol):
    """The client's side of an enhanced authentication method (5.0, section 4.12)."""

    @property
    def method(self) -> str:
        """Name of the method."""
        ...

    def start(self) -> bytes | None:
        """Data for CONNECT or for an AUTH that re-authenticates; begins anew."""
        ...

    def step(self, data: bytes) -> bytes | None:
        """The answer to a challenge."""
        ...

    def finish(self, data: bytes | None) -> None:
        """Check what the server sent with its success; raises ``MqttError`` if it is wrong."""
        ...


@final
class ClientAuth:
    """The exchange of one client.

    Args:
        authenticator: its method; None = it has none.
    """

    __slots__ = ("_authenticator",)

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator: Authenticator | None = authenticator

    def begin(self, properties: Properties) -> Properties:
        """The properties of CONNECT, with method and data if there is a method."""
        authenticator = self._authenticator
        if authenticator is None:
            return properties
        return _with_data(properties, authenticator.method, authenticator.start())

    def begin_again(self) -> Auth:
        """What starts an authentication on a running connection.

        Raises:
            UsageError: there is no method.
        """
        if self._authenticator is None:
            raise UsageError("there is no authentication method")
        return Auth(reason_codes.REAUTHENTICATE, self.begin(EMPTY))

    def answer(self, packet: Auth, *, is_connected: bool) -> Auth | None:
        """What to say to the server's AUTH; None = it has authenticated the client anew."""
        authenticator = self._authenticator
        properties = packet.properties
        if authenticator is None or properties.authentication_method not in (
            authenticator.method,
            None,
        ):
            raise ProtocolViolation("AUTH with a method that was not asked for")
        if packet.reason == reason_codes.CONTINUE_AUTHENTICATION:
            data = authenticator.step(properties.authentication_data or b"")
            return Auth(packet.reason, _with_data(EMPTY, authenticator.method, data))
        if not is_connected:
            raise ProtocolViolation("AUTH says success before CONNACK")
        authenticator.finish(properties.authentication_data)
        return None

    def finish(self, connack: Properties) -> None:
        """Check what the server sent with its CONNACK."""
        if self._authenticator is not None and connack.authentication_method is not None:
            self._authenticator.finish(connack.authentication_data)


def _with_data(properties: Properties, method: str, data: bytes | None) -> Properties:
    with_data = properties.copy()
    with_data.authentication_method = method
    with_data.authentication_data = data
    return with_data
