"""AUTH exchanges, at CONNECT and afterwards (MQTT 5.0 section 4.12).

What a method says is its own affair (``auth.authenticate.EnhancedMethod``); here are the order of
the packets and what ends the exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.auth.authenticate import AuthState, AuthStep
from perdure.broker.auth.guard import REFUSAL_DELAY_US
from perdure.errors import LoginRefused, MqttError
from perdure.mqtt.packets import Auth, Connect, Properties
from perdure.mqtt.reason_codes import (
    BAD_AUTHENTICATION_METHOD,
    BANNED,
    CONTINUE_AUTHENTICATION,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    REAUTHENTICATE,
)
from perdure.observe.instruments import add

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.core import BrokerCore


@final
class EnhancedAuth:
    """The AUTH exchanges of all connections.

    Args:
        core: what every part stands on.
        ban_enforcer: what else it uses.
    """

    def __init__(self, core: BrokerCore, *, ban_enforcer: BanEnforcer) -> None:
        self._core = core
        self._ban_enforcer: BanEnforcer = ban_enforcer

    async def authenticate(
        self, connection: ClientConnection, client_id: str, packet: Connect
    ) -> AuthStep:
        """Run the exchange that a CONNECT begins; raises the CONNACK's refusal."""
        core = self._core
        peer = connection.peer
        name = packet.properties.authentication_method
        assert name is not None
        if not core.standing.offers_enhanced(peer.listener):
            raise MqttError(BAD_AUTHENTICATION_METHOD, "authentication method not supported")
        certified: str | None = None
        if core.standing.takes_certificates(peer.listener):
            # The certificate has named the user; the exchange may prove that one besides.
            certified = peer.certificate_subject
            if not certified:
                raise MqttError(NOT_AUTHORIZED, "a client certificate is required")
        method = core.methods.begin(name, username=certified)
        connection.auth_name = name
        step = method.start(client_id, packet.properties.authentication_data)
        while step.state is AuthState.CONTINUE:
            self._keep_guessers_out(connection, client_id, step)
            _send_auth(connection, CONTINUE_AUTHENTICATION, name, step)
            answer = await connection.next_auth()
            self._check(answer, name)
            if answer.reason != CONTINUE_AUTHENTICATION:
                raise MqttError(PROTOCOL_ERROR, "AUTH with reason code 0x18 expected")
            step = method.step(answer.properties.authentication_data)
        ok = step.state is AuthState.DONE
        add(core.metrics.auth, ("ok" if ok else "refused", name))
        now_us = core.clock.monotonic_us()
        if step.state is AuthState.FAILED:
            connection.about = {"method": name, "reason": step.reason}
            if step.claimed:
                core.metrics.logins_failed += 1
                self._ban_enforcer.login_banned(
                    core.guard.failed(
                        username=step.claimed,
                        address=peer.address,
                        client_id=client_id,
                        now_us=now_us,
                    )
                )
            suspect = core.guard.is_suspect(peer.address, now_us)
            delay_us = REFUSAL_DELAY_US if suspect else 0
            raise LoginRefused(step.reason_code, "authentication failed", delay_us)
        core.guard.succeeded(
            username=step.username or "",
            address=peer.address,
            client_id=client_id,
            now_us=now_us,
        )
        return step

    def _keep_guessers_out(
        self, connection: ClientConnection, client_id: str, step: AuthStep
    ) -> None:
        """End an exchange for a user name that has failed too often from there."""
        if not step.claimed:
            return
        core = self._core
        ban = core.guard.verdict(
            username=step.claimed,
            address=connection.peer.address,
            client_id=client_id,
            now_us=core.clock.monotonic_us(),
        )
        if ban is not None:
            add(core.metrics.limit_refusals, (ban.limit,))
            raise LoginRefused(BANNED, "too many failed logins", REFUSAL_DELAY_US)

    async def auth(self, connection: ClientConnection, packet: Auth) -> None:
        """AUTH on an open connection: re-authentication, begun or continued."""
        core = self._core
        name = connection.auth_name
        session = connection.session
        assert session is not None
        if not name:
            raise MqttError(PROTOCOL_ERROR, "the connection did not use enhanced authentication")
        self._check(packet, name)
        data = packet.properties.authentication_data
        if packet.reason == REAUTHENTICATE:
            connection.auth_method = core.methods.begin_again(
                packet.properties.authentication_method or "",
                connected_with=name,
                username=session.identity.username,
            )
            step = connection.auth_method.start(session.client_id, data)
        elif packet.reason == CONTINUE_AUTHENTICATION and connection.auth_method is not None:
            step = connection.auth_method.step(data)
        else:
            raise MqttError(PROTOCOL_ERROR, "no re-authentication is under way")
        if step.state is AuthState.CONTINUE:
            reason = CONTINUE_AUTHENTICATION
        else:
            connection.auth_method = None
            if step.state is AuthState.FAILED:
                raise MqttError(step.reason_code, "re-authentication failed")
            reason = 0
        _send_auth(connection, reason, name, step)

    def _check(self, packet: Auth, name: str) -> None:
        if packet.properties.authentication_method != name:
            # [MQTT-4.12.0-5] every AUTH of an exchange carries the method of the CONNECT.
            raise MqttError(PROTOCOL_ERROR, "the authentication method must not change")


def _send_auth(connection: ClientConnection, reason: int, name: str, step: AuthStep) -> None:
    """Send AUTH, or give up the exchange: it would wait for ever for what was not sent."""
    packet = Auth(reason, Properties(authentication_method=name, authentication_data=step.data))
    if not connection.sender.packet(packet):
        raise MqttError(PACKET_TOO_LARGE, "the maximum packet size has no room for AUTH")
