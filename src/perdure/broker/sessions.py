"""The life of a session: created, resumed, taken over, let go, discarded.

Every change of owner goes through the store: the old owner's state is written, the new owner
reads it under a higher epoch. So a resume after a clean disconnect, after a takeover and after a
crash are one path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.live_session import LiveSession
from perdure.errors import StorageError
from perdure.limits import PACKET_ID_MAX
from perdure.model import Cursor, SessionRecord, StoredSession, Will
from perdure.mqtt.packets import Connack
from perdure.session.expiry import expires_at_us
from perdure.session.inbound import Inbound
from perdure.session.outbound import Outbound
from perdure.session.will import will_due_us, will_message

if TYPE_CHECKING:
    from perdure.broker.auth.authorize import Identity
    from perdure.broker.connection import Connection
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
class Sessions:
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
        """
        services = self._services
        self._take_over(request.client_id, clean_start=request.clean_start)
        if services.committer.batch.names_session(request.client_id):
            # The last connection has gone in this very turn, and all that it left (its cursor,
            # identifiers that await release) is in the open batch, where no read sees it.
            services.turn.write()
        stored = await services.database.open_session(request.client_id)
        now_us = services.clock.now_us()
        services.turn.now_us = now_us
        replaced = False
        if stored is not None:
            expired = stored.record.expires_at_us and stored.record.expires_at_us <= now_us
            if request.clean_start or expired:
                await self.discard(stored, expired=bool(expired))
                stored = None
                replaced = True
        cursor = stored.cursor if stored else Cursor(offset=services.dispatcher.offset)
        session = self._session(connection, request, stored, cursor, now_us=now_us)
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
        session.greeted = True
        if session.lagging:
            services.catchup.start(session)
        for sub in list(session.subs.values()):
            if sub.feed is not None:
                services.feeds.start(session, sub.name)
        for group in list(session.groups.values()):
            group.joined()

    def detach(self, session: LiveSession, connection: Connection, *, send_will: bool) -> None:
        """The connection lets go of its session: keep it, or end it.

        All of it goes into one batch, with the will if that is due now.
        """
        services = self._services
        now_us = services.turn.now_us
        session.is_open = False
        record = session.record
        ends = record.expiry_s == 0
        del services.registry.live[session.client_id]
        services.metrics.sessions_connected -= 1
        services.turn.clean(session)
        for sub in session.subs.values():
            services.metrics.subscriptions -= 1
            if not sub.group:
                services.router.remove(session, sub)
        writable = services.committer.writable
        services.shares.left(session, ends=ends)
        services.room.made(session)
        will = record.will if send_will else None
        will_at_us = 0
        if will is not None:
            due_us = will_due_us(will, disconnected_at_us=now_us, expiry_s=record.expiry_s)
            if not writable and session.stored:
                pass  # the store still has it, and it is due when the store is there again
            elif due_us <= now_us or not session.durable:
                self.publish_will(will, session.client_id)
                will = None
            else:
                will_at_us = due_us
        if not writable:
            return  # the store still has the session as it was
        batch = services.committer.batch
        if ends:
            if session.stored:
                batch.discard_session(session.client_id)
            services.turn.schedule()
            return
        services.metrics.sessions_offline += 1
        session.outbound.dirty = True
        session.put_cursor(batch)
        record = msgspec.structs.replace(
            record,
            connected=False,
            changed_at_us=now_us,
            will=will,
            will_at_us=will_at_us,
            expires_at_us=expires_at_us(now_us, record.expiry_s),
            cut_offset=record.cut_offset
            if record.cut_offset > session.outbound.acked_offset
            else 0,
        )
        session.record = record
        batch.put_session(record)
        services.reaper.note(record.deadline_us)
        services.turn.schedule()

    def change_expiry(self, session: LiveSession, expiry_s: int) -> None:
        """A new Session Expiry Interval at DISCONNECT (MQTT 5.0 section 3.14.2.2.2)."""
        expiry_s = min(expiry_s, self._services.session_config.expiry_max_s)
        session.record = msgspec.structs.replace(session.record, expiry_s=expiry_s)

    def publish_will(self, will: Will, client_id: str) -> None:
        """Publish a will now, as part of the open batch."""
        services = self._services
        if services.banning.mutes(client_id) or (will.qos and services.publishing.refusal()):
            services.log.warning("will.refused", client_id=client_id, topic=will.topic)
            return
        services.metrics.wills_published += 1
        services.publishing.take(will_message(will, client_id, services.turn.now_us))
        services.turn.schedule()

    async def discard(self, stored: StoredSession, *, expired: bool) -> None:
        """End a session that is not connected: its will is published, its shares pass on."""
        services = self._services
        record = stored.record
        if record.will is not None and (record.will_at_us or record.connected):
            # [MQTT-3.1.2-8] the will is due when the session ends, delay or not.
            self.publish_will(record.will, record.client_id)
        await services.shares.reclaim(stored, ends=True)
        services.committer.batch.discard_session(record.client_id)
        services.metrics.sessions_offline -= 1
        if expired:
            services.metrics.sessions_expired += 1
        else:
            services.metrics.sessions_discarded += 1
        services.turn.schedule()

    def _take_over(self, client_id: str, *, clean_start: bool) -> None:
        services = self._services
        old = services.registry.live.get(client_id)
        if old is None:
            return
        begun_us = services.clock.monotonic_us()
        services.metrics.sessions_taken_over += 1
        services.log.info("session.taken_over", client_id=client_id)
        old.taken_over = True
        if clean_start:
            # [MQTT-3.1.4-3] and 3.1.2.5: the old session ends with this, so its will is due.
            old.record = msgspec.structs.replace(old.record, expiry_s=0)
        old.holder.close(SESSION_TAKEN_OVER)
        # The old owner's cursor must be there before the new one reads it.
        services.turn.run()
        services.metrics.takeover_seconds.observe(services.clock.monotonic_us() - begun_us)

    def _session(
        self,
        connection: Connection,
        request: SessionRequest,
        stored: StoredSession | None,
        cursor: Cursor,
        *,
        now_us: int,
    ) -> LiveSession:
        """A session in memory: a new one, or what was stored under the next epoch."""
        services = self._services
        old = stored.record if stored is not None else None
        record = SessionRecord(
            request.client_id,
            epoch=(old.epoch if old is not None else 0) + 1,
            created_at_us=old.created_at_us if old is not None else now_us,
            expiry_s=request.expiry_s,
            connected=True,
            changed_at_us=now_us,
            will=request.will,
            username=request.identity.username or "",
            protocol=request.protocol,
            dropped_count=old.dropped_count if old is not None else 0,
            cut_offset=old.cut_offset if old is not None else 0,
        )
        return LiveSession(
            services,
            record,
            durable=request.expiry_s > 0 or stored is not None,
            holder=connection,
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
        if stored is not None:
            session.resumed = True
            session.lagging = True
            services.metrics.sessions_resumed += 1
            services.metrics.sessions_offline -= 1
        else:
            services.metrics.sessions_created += 1
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
                services.shares.join(session, sub)
            else:
                services.router.put(session, sub)
