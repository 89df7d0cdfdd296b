"""The life of a session: created, resumed, taken over, let go, discarded.

Every change of owner goes through the store: the old owner's state is written, the new owner
reads it under a higher epoch. So a resume after a clean disconnect, after a takeover and after a
crash are one path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.owning import given_to, may_hold, owner_after
from perdure.broker.delivery.live_session import LiveSession
from perdure.errors import MqttError, StorageError
from perdure.limits import PACKET_ID_MAX
from perdure.model import Cursor, SessionRecord, StoredSession, Will
from perdure.mqtt.packets import Connack
from perdure.mqtt.reason_codes import NOT_AUTHORIZED, QUOTA_EXCEEDED
from perdure.observe.instruments import add
from perdure.session.expiry import expires_at_us
from perdure.session.inbound import Inbound
from perdure.session.outbound import Outbound
from perdure.session.will import will_due_us, will_message

if TYPE_CHECKING:
    from perdure.broker.connection.connection import Connection
    from perdure.broker.services import Services

SESSION_TAKEN_OVER: Final = 0x8E
SERVER_UNAVAILABLE: Final = 0x88


@final
class SessionOpened:
    """CONNACK that waits for the commit of the session."""

    __slots__ = ("_connack", "_connection", "_session")

    def __init__(self, connection: Connection, session: LiveSession, connack: Connack) -> None:
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
class SessionRequest:
    """What a client that was let in wants of its session.

    Attributes:
        expiry_s: as granted; 0 = the session ends with its connection.
    """

    __slots__ = (
        "clean_start",
        "client_id",
        "expiry_s",
        "identity",
        "protocol",
        "receive_maximum",
        "will",
    )

    def __init__(
        self,
        client_id: str,
        identity: Identity,
        will: Will | None,
        *,
        clean_start: bool,
        expiry_s: int,
        receive_maximum: int,
        protocol: int,
    ) -> None:
        self.client_id: str = client_id
        self.identity: Identity = identity
        self.will: Will | None = will
        self.clean_start: bool = clean_start
        self.expiry_s: int = expiry_s
        self.receive_maximum: int = receive_maximum
        self.protocol: int = protocol


@final
class SessionLifecycle:
    """Opens and closes sessions.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def open(
        self, connection: Connection, request: SessionRequest
    ) -> tuple[LiveSession, bool]:
        """Give a session to a connection: resume it, or create it after discarding the old one.

        The caller has acquired the client id. Nothing is committed yet when this returns.

        Returns:
            The session, and whether it existed (Session Present).

        Raises:
            MqttError: the session belongs to another user (0x87); it is as it was. Or a quota
                leaves no room for a new one (0x97).
        """
        services = self._services
        live = services.registry.live.get(request.client_id)
        if live is not None:
            self._check_owner(live.record, request.identity)
            self._take_over(live, clean_start=request.clean_start)
        if services.committer.batch.names_session(request.client_id):
            # The last connection has gone in this very turn, and all that it left (its cursor,
            # identifiers that await release) is in the open batch, where no read sees it.
            services.pipeline.write()
        await services.committer.sequenced()
        stored = await services.database.open_session(request.client_id)
        now_us = services.clock.now_us()
        services.pipeline.now_us = now_us
        replaced = False
        if stored is not None:
            expired = stored.record.expires_at_us and stored.record.expires_at_us <= now_us
            if not expired:
                self._check_owner(stored.record, request.identity)
            if request.clean_start or expired:
                await self.discard(stored, expired=bool(expired))
                stored = None
                replaced = True
        if stored is None and not replaced and live is None:
            # Who has a session already gets it back, or a new one for it, however many there are.
            limit = services.session_counts.refusal(
                request.identity.username or "", services.limits_config
            )
            if limit:
                add(services.metrics.limit_refusals, (limit,))
                raise MqttError(QUOTA_EXCEEDED, "too many sessions")
        cursor = stored.cursor if stored else Cursor(offset=services.dispatcher.offset)
        session = self._session(connection, request, stored, cursor)
        session.replaced = replaced
        session.stored = session.durable or request.will is not None
        if session.stored:
            services.committer.batch.put_session(session.record)
            if session.durable and stored is None:
                services.committer.batch.put_cursor(
                    request.client_id, cursor, epoch=session.record.epoch
                )
        session.position = cursor.offset
        self._enter(session, stored)
        return session, stored is not None

    def opened(self, session: LiveSession, connection: Connection) -> None:
        """CONNACK is out: let what is owed follow."""
        services = self._services
        session.connack_sent = True
        if session.lagging:
            services.catchup.start(session)
        for sub in list(session.subs.values()):
            if sub.feed is not None:
                services.backfill.start(session, sub.name)
        for group in list(session.groups.values()):
            group.joined()

    def detach(self, session: LiveSession, connection: Connection, *, send_will: bool) -> None:
        """The connection lets go of its session: keep it, or end it.

        All of it goes into one batch, with the will if that is due now.
        """
        services = self._services
        now_us = services.pipeline.now_us
        session.is_open = False
        record = session.record
        ends = record.expiry_s == 0
        del services.registry.live[session.client_id]
        services.metrics.sessions_connected -= 1
        if send_will and not session.taken_over:
            services.ban_enforcer.flapped(session.client_id)
        services.pipeline.clean(session)
        for sub in session.subs.values():
            services.metrics.subscriptions -= 1
            if not sub.group:
                services.router.remove(session, sub)
        writable = services.committer.writable
        services.shared_subscriptions.left(session, ends=ends)
        services.window_waiters.notify(session)
        will = record.will if send_will else None
        will_at_us = 0
        if will is not None:
            due_us = will_due_us(will, disconnected_at_us=now_us, expiry_s=record.expiry_s)
            if not writable and session.stored:
                pass  # the store still has it, and it is due when the store is there again
            elif due_us <= now_us or not session.durable:
                self.publish_will(record, session.identity)
                will = None
            else:
                will_at_us = due_us
        if ends or not session.stored:
            services.session_counts.removed(record.username)
        if not writable:
            return  # the store still has the session as it was
        batch = services.committer.batch
        if ends:
            if session.stored:
                batch.discard_session(session.client_id)
            services.pipeline.schedule()
            return
        services.metrics.sessions_offline += 1
        session.outbound.dirty = True
        session.put_cursor(batch)
        record = msgspec.structs.replace(
            record,
            connected=False,
            changed_at_us=services.pipeline.wall_us(),
            subscription_count=len(session.subs),
            will=will,
            will_at_us=will_at_us,
            expires_at_us=expires_at_us(now_us, record.expiry_s),
            cut_offset=record.cut_offset
            if record.cut_offset > session.outbound.acked_offset
            else 0,
        )
        session.record = record
        services.metrics.subscriptions_offline += record.subscription_count
        batch.put_session(record)
        services.reaper.note(record.deadline_us)
        services.pipeline.schedule()

    def change_expiry(self, session: LiveSession, expiry_s: int) -> None:
        """A new Session Expiry Interval at DISCONNECT (MQTT 5.0 section 3.14.2.2.2)."""
        expiry_s = min(expiry_s, self._services.session_config.expiry_max_s)
        session.record = msgspec.structs.replace(session.record, expiry_s=expiry_s)

    def publish_will(self, record: SessionRecord, identity: Identity | None = None) -> None:
        """Publish the will of a session now, as part of the open batch.

        Rights are asked again: between the CONNECT and this its user may have been removed or
        banned, or the topic been withdrawn.

        Args:
            record: the session.
            identity: who held it until now; None = nobody did.
        """
        services = self._services
        will, client_id = record.will, record.client_id
        assert will is not None
        if services.ban_enforcer.mutes(client_id):
            why = "banned"
        elif not self.may_publish(record, will.topic, identity):
            why = "not authorized"
        elif will.qos and services.publish_path.refusal():
            why = "storage is full or not available"
        else:
            why = ""
        if why:
            services.log.warning("will.refused", client_id=client_id, topic=will.topic, reason=why)
            return
        if will.retain:
            limit = services.publish_path.refuses_retained(
                will.topic, will.payload, will.properties
            )
            if limit:
                add(services.metrics.limit_refusals, (limit,))
                will = msgspec.structs.replace(will, retain=False)
        services.metrics.wills_published += 1
        pipeline = services.pipeline
        services.publish_path.take(
            will_message(will, client_id, pipeline.now_us, pipeline.published_us())
        )
        services.pipeline.schedule()

    def may_publish(
        self, record: SessionRecord, topic: str, identity: Identity | None = None
    ) -> bool:
        """Whether the owner of a session may publish to a topic now, with a connection
        (``identity``) or without."""
        services = self._services
        username = record.username or None
        if not services.standing.stands(username, record.method):
            return False
        if services.ban_enforcer.bans_user(username):
            return False
        authorizer = services.authorizer
        if authorizer.allow_all and topic[0] != "$":
            return True
        if identity is None:
            superuser = services.standing.is_superuser(username)
            identity = Identity(record.client_id, username, superuser, method=record.method)
        return authorizer.publish(identity, topic)

    def give(self, stored: StoredSession, username: str) -> None:
        """Let a session that nobody holds belong to a user; empty = to anonymous clients.

        The caller has acquired the client id. Nothing is committed yet when this returns.
        """
        services = self._services
        before = stored.record
        owner, method = given_to(username, method=before.method)
        record = msgspec.structs.replace(before, username=owner, method=method)
        services.ban_enforcer.belongs(record)
        services.session_counts.removed(before.username)
        services.session_counts.added(owner)
        services.committer.batch.put_session(record)
        services.log.warning(
            "session.owner_changed",
            client_id=before.client_id,
            username=owner,
            former_username=before.username,
        )
        services.pipeline.schedule()

    async def discard(self, stored: StoredSession, *, expired: bool) -> None:
        """End a session that is not connected: its will is published, its shares pass on."""
        services = self._services
        record = stored.record
        if record.will is not None and (record.will_at_us or record.connected):
            # [MQTT-3.1.2-8] the will is due when the session ends, delay or not.
            self.publish_will(record)
        await services.shared_subscriptions.reclaim(stored, ends=True)
        services.committer.batch.discard_session(record.client_id)
        services.metrics.sessions_offline -= 1
        services.session_counts.gone(record)
        if expired:
            services.metrics.sessions_expired += 1
        else:
            services.metrics.sessions_discarded += 1
        services.pipeline.schedule()

    def _check_owner(self, record: SessionRecord, identity: Identity) -> None:
        """Refuse a session that belongs to another user, before anything of it is touched.

        Whoever opens a session has acquired its client id, so two that come at once are asked one
        after the other, and the second finds what the first has made.
        """
        binding = self._services.auth_config.client_id_binding
        if not may_hold(identity, username=record.username, method=record.method, binding=binding):
            add(self._services.metrics.limit_refusals, ("auth.client_id_binding",))
            raise MqttError(NOT_AUTHORIZED, "the client identifier belongs to another user")

    def _take_over(self, old: LiveSession, *, clean_start: bool) -> None:
        services = self._services
        client_id = old.client_id
        begun_us = services.clock.monotonic_us()
        services.metrics.sessions_taken_over += 1
        services.log.info("session.taken_over", client_id=client_id)
        old.taken_over = True
        if clean_start:
            # [MQTT-3.1.4-3] and 3.1.2.5: the old session ends with this, so its will is due.
            old.record = msgspec.structs.replace(old.record, expiry_s=0)
        services.ban_enforcer.flapped(client_id)
        old.connection.close(SESSION_TAKEN_OVER)
        # The old owner's cursor must be there before the new one reads it.
        services.pipeline.run()
        services.metrics.takeover_seconds.observe(services.clock.monotonic_us() - begun_us)

    def _session(
        self,
        connection: Connection,
        request: SessionRequest,
        stored: StoredSession | None,
        cursor: Cursor,
    ) -> LiveSession:
        """A session in memory: a new one, or what was stored under the next epoch."""
        services = self._services
        old = stored.record if stored is not None else None
        wall_us = services.pipeline.wall_us()
        username, method = owner_after(
            request.identity,
            username=old.username if old is not None else "",
            method=old.method if old is not None else "",
        )
        record = SessionRecord(
            request.client_id,
            epoch=(old.epoch if old is not None else 0) + 1,
            created_at_us=old.created_at_us if old is not None else wall_us,
            expiry_s=request.expiry_s,
            connected=True,
            changed_at_us=wall_us,
            will=request.will,
            username=username,
            protocol=request.protocol,
            dropped_count=old.dropped_count if old is not None else 0,
            cut_offset=old.cut_offset if old is not None else 0,
            method=method,
            subscription_count=old.subscription_count if old is not None else 0,
        )
        return LiveSession(
            services,
            record,
            durable=request.expiry_s > 0 or stored is not None,
            connection=connection,
            identity=request.identity,
            inbound=Inbound(
                stored.awaiting_release if stored else (),
                # 3.1.1 knows no Receive Maximum: only its packet identifiers are a bound.
                receive_maximum=services.mqtt_config.receive_maximum
                if request.protocol >= 5
                else PACKET_ID_MAX,
            ),
            outbound=Outbound(
                cursor,
                window_max=min(request.receive_maximum, services.session_config.inflight_max),
                maybe_sent_offset=record.cut_offset,
            ),
        )

    def _enter(self, session: LiveSession, stored: StoredSession | None) -> None:
        """Count a session among the live ones; a resumed one has its subscriptions again."""
        services = self._services
        services.ban_enforcer.belongs(session.record)
        if stored is not None:
            session.resumed = True
            session.lagging = True
            services.metrics.sessions_resumed += 1
            services.metrics.sessions_offline -= 1
            services.session_counts.gone(stored.record)
        else:
            services.metrics.sessions_created += 1
        services.session_counts.added(session.record.username)
        services.registry.live[session.client_id] = session
        services.metrics.sessions_connected += 1
        if stored is not None:
            self._restore_subscriptions(session, stored)

    def _restore_subscriptions(self, session: LiveSession, stored: StoredSession) -> None:
        services = self._services
        for sub in stored.subscriptions:
            if sub.until_offset:
                session.ended.append(sub)
                continue
            session.subs[sub.name] = sub
            if sub.feed is not None:
                session.feeding += 1
            services.metrics.subscriptions += 1
            if sub.group:
                services.shared_subscriptions.join(session, sub)
            else:
                services.router.put(session, sub)
