"""CONNECT: who is there, what it may have, and which session it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.auth.authenticate import AuthRequest, AuthState, AuthStep
from perdure.broker.auth.authorize import Identity
from perdure.broker.commit import LEVEL_FSYNC
from perdure.broker.quotas import TokenBucket
from perdure.broker.sessions import SessionOpened
from perdure.errors import MqttError
from perdure.model import Will
from perdure.mqtt.aliases import OutboundAliases
from perdure.mqtt.packets import Auth, Connack, Connect, Properties
from perdure.mqtt.reason_codes import BANNED
from perdure.observe.instruments import add
from perdure.session.expiry import session_expiry_s
from perdure.topic.names import validate_topic_name

if TYPE_CHECKING:
    from perdure.broker.connection import Connection
    from perdure.broker.services import Services

CLIENT_ID_NOT_VALID: Final = 0x85
NOT_AUTHORIZED: Final = 0x87
PACKET_TOO_LARGE: Final = 0x95
BAD_AUTHENTICATION_METHOD: Final = 0x8C
CONTINUE_AUTHENTICATION: Final = 0x18
ASSIGNED_PREFIX: Final = "perdure-"


@final
class Connecting:
    """Handles CONNECT.

    Args:
        services: the parts of the broker.
        level: durability that CONNACK waits for.
    """

    def __init__(self, services: Services, *, level: int = LEVEL_FSYNC) -> None:
        self._services = services
        self._level = level

    async def connect(self, connection: Connection, packet: Connect) -> None:
        """Answer a CONNECT; a refusal is raised as ``MqttError`` with the CONNACK's code."""
        services = self._services
        properties = packet.properties
        sender = connection.sender
        sender.version = packet.protocol
        sender.packet_size_max = properties.maximum_packet_size or 0
        connection.problem_information = properties.request_problem_information != 0
        connection.count(packet.protocol)
        client_id, assigned = self._client_id(packet)
        if packet.will is not None:
            self._check_will(packet.will)
        banning = services.banning
        banning.check(connection, client_id, packet.username)
        identity, step = await self._identify(connection, client_id, packet)
        if connection.is_closed:
            return
        # Again: it took time, and a certificate or SCRAM may have named somebody else.
        banning.check(connection, client_id, identity.username or packet.username)
        version = banning.version
        if packet.will is not None and not services.authorizer.publish(identity, packet.will.topic):
            raise MqttError(NOT_AUTHORIZED, "not authorised for the will topic")
        expiry_s = session_expiry_s(
            protocol=packet.protocol,
            clean_start=packet.clean_start,
            requested_s=properties.session_expiry_interval,
            persistent_s=services.session_config.expiry_persistent_s,
            max_s=services.session_config.expiry_max_s,
        )
        keep_alive_s = self._keep_alive(packet)
        answer = self._answer(
            connection,
            packet,
            client_id=client_id,
            assigned=assigned,
            expiry_s=expiry_s,
            keep_alive_s=keep_alive_s,
            step=step,
        )
        if not sender.fits(Connack(False, 0, answer)):
            # [MQTT-3.1.2-24]. A session would be of no use to a client that never hears of it.
            raise MqttError(PACKET_TOO_LARGE, "the maximum packet size has no room for CONNACK")
        await services.registry.acquire(client_id)
        try:
            if connection.is_closed:
                return
            if not services.committer.writable and (expiry_s or packet.will is not None):
                raise MqttError(0x88, "storage is not available")
            session, present = await services.sessions.open(
                connection,
                client_id=client_id,
                clean_start=packet.clean_start,
                expiry_s=expiry_s,
                will=packet.will,
                identity=identity,
                receive_maximum=properties.receive_maximum or 65_535,
                protocol=packet.protocol,
            )
            connection.session = session
            if connection.is_closed:
                services.sessions.detach(session, connection, send_will=True)
                return
            # Who was not among the live sessions was not seen when the list changed.
            if banning.version != version and banning.refuses(
                connection, client_id, identity.username
            ):
                connection.disconnect(BANNED, "banned", send_will=False)
                return
        finally:
            services.registry.release(client_id)
        if packet.protocol >= 5 and properties.topic_alias_maximum:
            sender.aliases = OutboundAliases(properties.topic_alias_maximum)
        if packet.protocol >= 5:
            connection.exchange.accept_aliases(services.mqtt_config.topic_alias_maximum)
        connection.start_keep_alive(keep_alive_s)
        self._limit_rates(connection)
        services.log.info(
            "connection.opened",
            client_id=client_id,
            address=connection.peer.address,
            protocol=packet.protocol,
            session_present=present,
        )
        if identity.superuser:
            services.log.info(
                "connection.superuser",
                client_id=client_id,
                address=connection.peer.address,
                username=identity.username,
                listener=connection.peer.listener,
            )
        opened = SessionOpened(connection, session, Connack(present, 0, answer))
        if session.stored or session.replaced:
            # [MQTT-3.1.2-4] what the CONNACK says must survive a kill: also that the old session
            # is gone.
            services.committer.wait(opened, self._level)
            services.turn.schedule()
        else:
            opened.committed()

    def _limit_rates(self, connection: Connection) -> None:
        """Hold the client to ``limits.*_rate``; clients that are connected keep their own."""
        limits = self._services.limits_config
        now_us = connection.received_us

        def bucket(rate: int) -> TokenBucket | None:
            return TokenBucket(rate, now_us=now_us) if rate else None

        connection.exchange.limit_rates(
            bucket(limits.publish_rate), bucket(limits.publish_bytes_rate)
        )
        connection.limit_subscribe_rate(bucket(limits.subscribe_rate))

    def _client_id(self, packet: Connect) -> tuple[str, bool]:
        """The client id, assigned if the client has none [MQTT-3.1.3-6] [MQTT-3.1.3-7]."""
        services = self._services
        config = services.mqtt_config
        client_id = packet.client_id
        if client_id:
            if len(client_id.encode()) > config.client_id_bytes_max:
                raise MqttError(CLIENT_ID_NOT_VALID, "client identifier is too long")
            return client_id, False
        if not config.allow_empty_client_id or (packet.protocol < 5 and not packet.clean_start):
            # [MQTT-3.1.3-8] of 3.1.1: without an identifier the session could not be found again.
            raise MqttError(CLIENT_ID_NOT_VALID, "a client identifier is required")
        return f"{ASSIGNED_PREFIX}{services.random.getrandbits(96):024x}", True

    def _check_will(self, will: Will) -> None:
        config = self._services.mqtt_config
        if will.qos > config.maximum_qos:
            raise MqttError(0x9B, f"will QoS {will.qos} is not supported")
        if will.retain and not config.retain_available:
            raise MqttError(0x9A, "retained messages are not supported")
        validate_topic_name(will.topic, levels_max=config.topic_levels_max)

    async def _identify(
        self, connection: Connection, client_id: str, packet: Connect
    ) -> tuple[Identity, AuthStep | None]:
        """Who the client is, and how an enhanced authentication ended."""
        if packet.properties.authentication_method is None:
            return await self._authenticate(connection, client_id, packet), None
        step = await self._services.enhanced.authenticate(connection, client_id, packet)
        return Identity(client_id, step.username, step.superuser), step

    async def _authenticate(
        self, connection: Connection, client_id: str, packet: Connect
    ) -> Identity:
        services = self._services
        peer = connection.peer
        started_us = services.clock.monotonic_us()
        result = await services.authenticator.authenticate(
            AuthRequest(
                client_id=client_id,
                username=packet.username,
                password=packet.password,
                address=peer.address,
                loopback=peer.loopback,
                listener=peer.listener,
                certificate_subject=peer.certificate_subject,
                protocol=packet.protocol,
            )
        )
        services.metrics.auth_seconds.observe(services.clock.monotonic_us() - started_us)
        add(services.metrics.auth, ("ok" if result.ok else "refused", result.method))
        if not result.ok:
            services.log.warning(
                "connection.refused",
                client_id=client_id,
                address=peer.address,
                username=packet.username,
                method=result.method,
                reason_code=result.reason_code,
            )
            raise MqttError(result.reason_code, "authentication failed")
        return Identity(client_id, result.username, result.superuser)

    def _keep_alive(self, packet: Connect) -> int:
        """The keep alive that the client is held to, seconds; 0 = none."""
        longest_s = self._services.mqtt_config.keep_alive_max_s
        if longest_s and (not packet.keep_alive or packet.keep_alive > longest_s):
            return longest_s
        return packet.keep_alive

    def _answer(
        self,
        connection: Connection,
        packet: Connect,
        *,
        client_id: str,
        assigned: bool,
        expiry_s: int,
        keep_alive_s: int,
        step: AuthStep | None,
    ) -> Properties:
        """What CONNACK tells the client of us and of its session."""
        if packet.protocol < 5:
            return Properties()
        config = self._services.mqtt_config
        requested = packet.properties.session_expiry_interval or 0
        info = config.response_information
        if info:
            info = info.replace("%c", client_id)
        wants_info = packet.properties.request_response_information == 1
        return Properties(
            session_expiry_interval=expiry_s if expiry_s != requested else None,
            receive_maximum=config.receive_maximum,
            maximum_qos=config.maximum_qos if config.maximum_qos < 2 else None,
            retain_available=None if config.retain_available else 0,
            maximum_packet_size=config.packet_size_max,
            assigned_client_identifier=client_id if assigned else None,
            topic_alias_maximum=config.topic_alias_maximum or None,
            wildcard_subscription_available=None if config.wildcard_subscription_available else 0,
            subscription_identifier_available=None
            if config.subscription_identifier_available
            else 0,
            shared_subscription_available=None if config.shared_subscription_available else 0,
            server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
            response_information=info if info and wants_info else None,
            authentication_method=connection.auth_name or None,
            authentication_data=step.data if step is not None else None,
        )


@final
class Enhanced:
    """AUTH exchanges, at CONNECT and afterwards (MQTT 5.0 section 4.12).

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def authenticate(
        self, connection: Connection, client_id: str, packet: Connect
    ) -> AuthStep:
        """Run the exchange that a CONNECT begins; raises the CONNACK's refusal."""
        name = packet.properties.authentication_method
        assert name is not None
        method = self._services.methods.begin(name)
        connection.auth_name = name
        step = method.start(client_id, packet.properties.authentication_data)
        while step.state is AuthState.CONTINUE:
            _send_auth(connection, CONTINUE_AUTHENTICATION, name, step)
            answer = await connection.next_auth()
            self._check(answer, name)
            if answer.reason != CONTINUE_AUTHENTICATION:
                raise MqttError(0x82, "AUTH with reason code 0x18 expected")
            step = method.step(answer.properties.authentication_data)
        ok = step.state is AuthState.DONE
        add(self._services.metrics.auth, ("ok" if ok else "refused", name))
        if step.state is AuthState.FAILED:
            self._services.log.warning(
                "connection.refused",
                client_id=client_id,
                address=connection.peer.address,
                method=name,
                reason=step.reason,
            )
            raise MqttError(step.reason_code, "authentication failed")
        return step

    async def auth(self, connection: Connection, packet: Auth) -> None:
        """AUTH on an open connection: re-authentication, begun or continued."""
        services = self._services
        name = connection.auth_name
        session = connection.session
        assert session is not None
        if not name:
            raise MqttError(0x82, "the connection did not use enhanced authentication")
        self._check(packet, name)
        data = packet.properties.authentication_data
        if packet.reason == 0x19:
            connection.auth_method = services.methods.begin_again(
                packet.properties.authentication_method or "",
                connected_with=name,
                username=session.identity.username,
            )
            step = connection.auth_method.start(session.client_id, data)
        elif packet.reason == CONTINUE_AUTHENTICATION and connection.auth_method is not None:
            step = connection.auth_method.step(data)
        else:
            raise MqttError(0x82, "no re-authentication is under way")
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
            raise MqttError(0x82, "the authentication method must not change")


def _send_auth(connection: Connection, reason: int, name: str, step: AuthStep) -> None:
    """Send AUTH, or give up the exchange: it would wait for ever for what was not sent."""
    packet = Auth(reason, Properties(authentication_method=name, authentication_data=step.data))
    if not connection.sender.packet(packet):
        raise MqttError(PACKET_TOO_LARGE, "the maximum packet size has no room for AUTH")
