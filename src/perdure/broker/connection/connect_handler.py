"""CONNECT: who is there, what it may have, and which session it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.auth.authenticate import AuthRequest, AuthStep
from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.flapping import LIMIT as FLAPPING_LIMIT
from perdure.broker.commit.waiters import LEVEL_FSYNC
from perdure.broker.connection.connack import connack_properties, keep_alive_of
from perdure.broker.runtime.token_bucket import TokenBucket
from perdure.broker.sessions.request import SessionRequest
from perdure.errors import LoginRefused, MqttError, StorageError
from perdure.limits import FORWARDER_PREFIX
from perdure.model import Will
from perdure.mqtt.aliases import OutboundAliases
from perdure.mqtt.packets import Connack, Connect, Properties
from perdure.mqtt.reason_codes import (
    BAD_USERNAME_OR_PASSWORD,
    BANNED,
    CLIENT_IDENTIFIER_NOT_VALID,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    SERVER_UNAVAILABLE,
)
from perdure.observe.instruments import add
from perdure.session.expiry import session_expiry_s
from perdure.topic.names import validate_topic_name

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.access.login_expiry import LoginExpiry
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.connection.enhanced_auth import EnhancedAuth
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.lifecycle import SessionLifecycle

ASSIGNED_PREFIX: Final = "perdure-"


@final
class PendingConnack:
    """CONNACK that waits for the commit of the session."""

    __slots__ = ("_connack", "_connection", "_session")

    def __init__(
        self, connection: ClientConnection, session: LiveSession, connack: Connack
    ) -> None:
        self._connection = connection
        self._session = session
        self._connack = connack

    def committed(self) -> None:
        """The session is durable."""
        self._connection.opened(self._session, self._connack)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """No session without a store."""
        self._connection.storage_lost(SERVER_UNAVAILABLE)

    def broke(self, error: Exception) -> None:
        """Its connection ends."""
        self._connection.broke(error, "answer")


@final
class _Admission:
    """What a client that may come in is, and what it is granted.

    Attributes:
        bans_version: ``BanEnforcer.version`` when it was last checked.
        properties: of the CONNACK.
    """

    __slots__ = ("bans_version", "client_id", "expiry_s", "identity", "keep_alive_s", "properties")

    def __init__(
        self,
        client_id: str,
        identity: Identity,
        properties: Properties,
        *,
        bans_version: int,
        expiry_s: int,
        keep_alive_s: int,
    ) -> None:
        self.client_id: str = client_id
        self.identity: Identity = identity
        self.properties: Properties = properties
        self.bans_version: int = bans_version
        self.expiry_s: int = expiry_s
        self.keep_alive_s: int = keep_alive_s


@final
class ConnectHandler:
    """Handles CONNECT.

    Args:
        core: what every part stands on.
        level: durability that CONNACK waits for.
        ban_enforcer, enhanced_auth, login_expiry, registry, sessions: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        level: int = LEVEL_FSYNC,
        ban_enforcer: BanEnforcer,
        enhanced_auth: EnhancedAuth,
        login_expiry: LoginExpiry,
        registry: Registry,
        sessions: SessionLifecycle,
    ) -> None:
        self._core = core
        self._ban_enforcer: BanEnforcer = ban_enforcer
        self._enhanced_auth: EnhancedAuth = enhanced_auth
        self._login_expiry: LoginExpiry = login_expiry
        self._registry: Registry = registry
        self._sessions: SessionLifecycle = sessions
        self._level = level

    async def connect(self, connection: ClientConnection, packet: Connect) -> None:
        """Answer a CONNECT; a refusal is raised as ``MqttError`` with the CONNACK's code."""
        core = self._core
        connection.sender.version = packet.protocol
        connection.sender.packet_size_max = packet.properties.maximum_packet_size or 0
        connection.problem_information = packet.properties.request_problem_information != 0
        connection.count(packet.protocol)
        connection.opening = packet
        admission = await self._admit(connection, packet)
        if admission is None:
            return
        found = await self._open_session(connection, packet, admission)
        if found is None:
            return
        session, present = found
        self._set_up(connection, packet, admission)
        self._log_opened(connection, packet, admission, present=present)
        pairs = packet.properties.user_properties
        if pairs and core.clients_declare is not None:
            core.clients_declare.declared(admission.identity, admission.client_id, pairs)
        pending = PendingConnack(connection, session, Connack(present, 0, admission.properties))
        if session.stored or session.replaced:
            # [MQTT-3.1.2-4] what the CONNACK says must survive a kill: also that the old session
            # is gone.
            core.committer.wait(pending, self._level)
            core.pipeline.schedule()
        else:
            pending.committed()

    async def _admit(self, connection: ClientConnection, packet: Connect) -> _Admission | None:
        """Find out who is there and what it may have; None if it has gone meanwhile."""
        core = self._core
        client_id, assigned = self._client_id(packet)
        if packet.will is not None:
            self._check_will(packet.will)
        if core.flapping.refuses(client_id, core.clock.monotonic_us()):
            add(core.metrics.limit_refusals, (FLAPPING_LIMIT,))
            raise MqttError(BANNED, "the client identifier connects too often")
        bans = self._ban_enforcer
        bans.check(connection, client_id, packet.username)
        identity, step = await self._identify(connection, client_id, packet)
        if connection.is_closed:
            return None
        # Again: it took time, and a certificate or SCRAM may have named somebody else.
        bans.check(connection, client_id, identity.username or packet.username)
        bans_version = bans.version
        if packet.will is not None and not core.authorizer.publish(identity, packet.will.topic):
            raise MqttError(NOT_AUTHORIZED, "not authorised for the will topic")
        expiry_s = session_expiry_s(
            protocol=packet.protocol,
            clean_start=packet.clean_start,
            requested_s=packet.properties.session_expiry_interval,
            persistent_s=core.session_config.expiry_persistent_s,
            max_s=core.session_config.expiry_max_s,
        )
        keep_alive_s = keep_alive_of(packet, core.mqtt_config)
        properties = connack_properties(
            core.mqtt_config,
            connection,
            packet,
            client_id=client_id,
            assigned=assigned,
            expiry_s=expiry_s,
            keep_alive_s=keep_alive_s,
            step=step,
            origin=core.origin,
        )
        if not connection.sender.fits(Connack(False, 0, properties)):
            # [MQTT-3.1.2-24]. A session would be of no use to a client that never hears of it.
            raise MqttError(PACKET_TOO_LARGE, "the maximum packet size has no room for CONNACK")
        return _Admission(
            client_id,
            identity,
            properties,
            bans_version=bans_version,
            expiry_s=expiry_s,
            keep_alive_s=keep_alive_s,
        )

    async def _open_session(
        self, connection: ClientConnection, packet: Connect, admission: _Admission
    ) -> tuple[LiveSession, bool] | None:
        """Give the connection its session.

        Returns:
            The session and whether it existed; None if the connection has ended meanwhile.
        """
        core = self._core
        client_id = admission.client_id
        await self._registry.acquire(client_id)
        try:
            if connection.is_closed:
                return None
            if not core.committer.writable and (admission.expiry_s or packet.will is not None):
                raise MqttError(SERVER_UNAVAILABLE, "storage is not available")
            session, present = await self._sessions.open(
                connection,
                SessionRequest(
                    client_id,
                    admission.identity,
                    packet.will,
                    clean_start=packet.clean_start,
                    expiry_s=admission.expiry_s,
                    receive_maximum=packet.properties.receive_maximum or 65_535,
                    protocol=packet.protocol,
                    packet_bytes_max=connection.sender.packet_size_max,
                ),
            )
            connection.session = session
            if connection.is_closed:
                self._sessions.detach(session, send_will=True)
                return None
            # Who was not among the live sessions was not seen when the list, or the rules, changed.
            if not core.standing.keeps(admission.identity, loopback=connection.peer.loopback):
                connection.disconnect(NOT_AUTHORIZED, "access was withdrawn", send_will=False)
                return None
            bans = self._ban_enforcer
            if bans.version != admission.bans_version and bans.refuses(
                connection, client_id, admission.identity.username
            ):
                connection.disconnect(BANNED, "banned", send_will=False)
                return None
            identity = admission.identity
            if identity.expires_us or identity.recheck_us:
                self._login_expiry.opened(session)
            return session, present
        finally:
            self._registry.release(client_id)

    def _set_up(self, connection: ClientConnection, packet: Connect, admission: _Admission) -> None:
        """Hold both sides to what CONNECT and CONNACK say."""
        aliases = -1
        if packet.protocol >= 5:
            aliases = self._core.mqtt_config.topic_alias_maximum
            if packet.properties.topic_alias_maximum:
                connection.sender.aliases = OutboundAliases(packet.properties.topic_alias_maximum)
        # Clients that are connected keep the rates that they came with.
        limits = self._core.limits_of(connection.peer.listener)
        now_us = connection.received_us
        connection.accept(
            keep_alive_s=admission.keep_alive_s,
            topic_aliases=aliases,
            publish=_bucket(limits.publish_rate, now_us),
            publish_bytes=_bucket(limits.publish_bytes_rate, now_us),
            subscribe=_bucket(limits.subscribe_rate, now_us),
        )

    def _log_opened(
        self, connection: ClientConnection, packet: Connect, admission: _Admission, *, present: bool
    ) -> None:
        log = self._core.log
        peer = connection.peer
        log.info(
            "connection.opened",
            client_id=admission.client_id,
            username=admission.identity.username,
            address=peer.address,
            listener=peer.listener,
            protocol=packet.protocol,
            clean_start=packet.clean_start,
            keep_alive_s=admission.keep_alive_s,
            session_present=present,
        )
        if admission.identity.superuser:
            log.info(
                "connection.superuser",
                client_id=admission.client_id,
                address=peer.address,
                username=admission.identity.username,
                listener=peer.listener,
            )

    def _client_id(self, packet: Connect) -> tuple[str, bool]:
        """The client id, assigned if the client has none [MQTT-3.1.3-6] [MQTT-3.1.3-7]."""
        core = self._core
        config = core.mqtt_config
        client_id = packet.client_id
        if client_id:
            if client_id.startswith(FORWARDER_PREFIX):
                raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "the broker's own sessions begin so")
            if len(client_id.encode()) > config.client_id_bytes_max:
                raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "client identifier is too long")
            return client_id, False
        if not config.allow_empty_client_id or (packet.protocol < 5 and not packet.clean_start):
            # [MQTT-3.1.3-8] of 3.1.1: without an identifier the session could not be found again.
            raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "a client identifier is required")
        return f"{ASSIGNED_PREFIX}{core.random.getrandbits(96):024x}", True

    def _check_will(self, will: Will) -> None:
        config = self._core.mqtt_config
        if will.qos > config.maximum_qos:
            raise MqttError(QOS_NOT_SUPPORTED, f"will QoS {will.qos} is not supported")
        if will.retain and not config.retain_available:
            raise MqttError(RETAIN_NOT_SUPPORTED, "retained messages are not supported")
        validate_topic_name(will.topic, levels_max=config.topic_levels_max)

    async def _identify(
        self, connection: ClientConnection, client_id: str, packet: Connect
    ) -> tuple[Identity, AuthStep | None]:
        """Who the client is, and how an enhanced authentication ended."""
        if packet.properties.authentication_method is None:
            return await self._authenticate(connection, client_id, packet), None
        step = await self._enhanced_auth.authenticate(connection, client_id, packet)
        identity = Identity(
            client_id,
            step.username,
            step.superuser,
            method=packet.properties.authentication_method,
            proof=step.proof,
        )
        return identity, step

    async def _authenticate(
        self, connection: ClientConnection, client_id: str, packet: Connect
    ) -> Identity:
        core = self._core
        peer = connection.peer
        started_us = core.clock.monotonic_us()
        result = await core.authenticator.authenticate(
            AuthRequest(
                client_id=client_id,
                username=packet.username,
                password=packet.password,
                address=peer.address,
                loopback=peer.loopback,
                listener=peer.listener,
                certificate_subject=peer.certificate_subject,
                certificate=peer.certificate,
                protocol=packet.protocol,
                now_us=started_us,
            )
        )
        core.metrics.auth_seconds.observe(core.clock.monotonic_us() - started_us)
        add(core.metrics.auth, ("ok" if result.ok else "refused", result.method))
        if not result.ok:
            connection.about = {"method": result.method, "reason": result.reason or result.limit}
            if result.limit:
                add(core.metrics.limit_refusals, (result.limit,))
            elif result.reason_code == BAD_USERNAME_OR_PASSWORD:
                core.metrics.logins_failed += 1
                self._ban_enforcer.login_banned(result.ban)
            raise LoginRefused(result.reason_code, "authentication failed", result.delay_us)
        return Identity(
            client_id,
            result.username,
            result.superuser,
            method=result.method,
            proof=result.proof,
            grant=result.grant,
            expires_us=result.expires_us,
            recheck_us=result.recheck_us,
        )


def _bucket(rate: int, now_us: int) -> TokenBucket | None:
    return TokenBucket(rate, now_us=now_us) if rate else None
