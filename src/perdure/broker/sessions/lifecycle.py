"""The life of a session: created, resumed, taken over, let go, discarded.

Every change of owner goes through the store: the old owner's state is written, the new owner
reads it under a higher epoch. So a resume after a clean disconnect, after a takeover and after a
crash are one path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import msgspec

from perdure.broker.auth.owning import given_to
from perdure.broker.commit.waiters import LEVEL_OS
from perdure.broker.delivery.held_session import SessionConnection
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.delivery.registry import Leaving
from perdure.broker.sessions.claims import CLAIMS_MAX
from perdure.broker.sessions.entrance import SessionEntrance
from perdure.broker.sessions.grants import SessionGrants
from perdure.errors import MqttError
from perdure.model import Cursor, StoredSession
from perdure.mqtt.reason_codes import SERVER_UNAVAILABLE, SESSION_TAKEN_OVER
from perdure.session.expiry import expires_at_us
from perdure.session.will import will_due_us
from perdure.storage.peers import epoch_after

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.delivery.live_session import SessionParts
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.claims import Claims
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.request import SessionRequest
    from perdure.broker.sessions.wills import WillPublisher
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.model import SessionRecord


class Deadlines(Protocol):
    """Who sees to what is due."""

    def note(self, deadline_us: int) -> None:
        """A session has a deadline; 0 = none."""
        ...


@final
class SessionLifecycle:
    """Opens and closes sessions.

    Args:
        parts: what every part stands on.
        ban_enforcer, claims, registry, session_counts, shared_subscriptions, wills: what else it
            uses.
    """

    def __init__(
        self,
        parts: SessionParts,
        *,
        ban_enforcer: BanEnforcer,
        claims: Claims,
        registry: Registry,
        session_counts: SessionCounts,
        shared_subscriptions: SharedSubscriptions,
        wills: WillPublisher,
    ) -> None:
        self._parts = parts
        self._entrance: SessionEntrance = SessionEntrance(
            parts,
            ban_enforcer=ban_enforcer,
            registry=registry,
            session_counts=session_counts,
            shared_subscriptions=shared_subscriptions,
        )
        self._grants: SessionGrants = SessionGrants(parts, session_counts=session_counts)
        self.deadlines: Deadlines | None = None
        """Told when a session that is let go has something due."""
        self._ban_enforcer: BanEnforcer = ban_enforcer
        self._claims: Claims = claims
        self._registry: Registry = registry
        self._session_counts: SessionCounts = session_counts
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions
        self._wills: WillPublisher = wills

    async def open(
        self, connection: SessionConnection, request: SessionRequest
    ) -> tuple[LiveSession, bool]:
        """Give a session to a connection: resume it, or create it after discarding the old one.

        The caller has acquired the client id. Nothing is committed yet when this returns.

        Returns:
            The session, and whether its client may go on with what it remembers (Session Present).

        Raises:
            MqttError: the session belongs to another user (0x87); it is as it was. Or a quota
                leaves no room for a new one, or for the will (0x97).
        """
        live = self._registry.live.get(request.client_id)
        if live is not None:
            self._grants.check_owner(live.record, request.identity)
        self._grants.hold_will(request, live.record if live is not None else None)
        try:
            return await self._open(connection, request, live)
        except BaseException:
            self._grants.release_will(request.will)
            raise

    async def _open(
        self, connection: SessionConnection, request: SessionRequest, live: LiveSession | None
    ) -> tuple[LiveSession, bool]:
        parts = self._parts
        if live is not None:
            self._take_over(live, clean_start=request.clean_start)
        if parts.peers is not None:
            return await self._open_claimed(connection, request, is_new=live is None)
        if parts.committer.batch.names_session(request.client_id):
            # The last connection has gone in this very turn, and all that it left (its cursor,
            # identifiers that await release) is in the open batch, where no read sees it.
            parts.pipeline.write()
        await parts.committer.sequenced()
        stored = await parts.database.open_session(request.client_id)
        now_us = parts.clock.now_us()
        parts.pipeline.now_us = now_us
        replaced = False
        if stored is not None:
            expired = stored.record.expires_at_us and stored.record.expires_at_us <= now_us
            if not expired:
                self._grants.check_owner(stored.record, request.identity)
            if request.clean_start or expired:
                await self.discard(stored, expired=bool(expired))
                stored = None
                replaced = True
        if stored is None and not replaced and live is None:
            # Who has a session already gets it back, or a new one for it, however many there are.
            self._grants.check_room(request)
        cursor = stored.cursor if stored else Cursor(offset=parts.dispatcher.offset)
        old = stored.record if stored is not None else None
        record = self._grants.record(request, old, epoch=(old.epoch if old is not None else 0) + 1)
        session = self._entrance.session(connection, request, record, stored, cursor)
        session.replaced = replaced
        session.stored = session.durable or request.will is not None
        if session.stored:
            parts.committer.batch.put_session(session.record)
            if session.durable and stored is None:
                parts.committer.batch.put_cursor(
                    request.client_id, cursor, epoch=session.record.epoch
                )
        session.position = cursor.offset
        await self._entrance.enter(session, stored)
        # A client of a restored session must forget its own half: see ``SessionRecord.protocol``.
        return session, stored is not None and stored.record.protocol > 0

    async def _open_claimed(
        self, connection: SessionConnection, request: SessionRequest, *, is_new: bool
    ) -> tuple[LiveSession, bool]:
        """``open`` where other nodes may have the session: it is claimed, and then read."""
        try:
            return await self._claim_and_enter(connection, request, is_new=is_new)
        finally:
            self._claims.settle(request.client_id)

    async def _claim_and_enter(
        self, connection: SessionConnection, request: SessionRequest, *, is_new: bool
    ) -> tuple[LiveSession, bool]:
        parts, peers = self._parts, self._parts.peers
        assert peers is not None
        claims = self._claims
        client_id = request.client_id
        for _ in range(CLAIMS_MAX):
            resumed = False
            stored = await claims.read(client_id)
            if connection.has_hung_up():
                # Nothing was read while it waited; its client may have a later connection by now.
                raise MqttError(SERVER_UNAVAILABLE, "the client has hung up")
            now_us = parts.pipeline.now_us = parts.clock.now_us()
            cursor = Cursor(offset=parts.dispatcher.offset)
            if stored is None:
                claimed = await self._claim_new(request, cursor, is_new=is_new)
                if claimed is None:
                    continue
                record = claimed
            else:
                old = stored.record
                expired = old.expires_at_us and old.expires_at_us <= now_us
                if not expired:
                    self._grants.check_owner(old, request.identity)
                # One without expiry ends with the connection that has it.
                ends = old.connected and not old.expiry_s
                if request.clean_start or expired or ends:
                    stored = await claims.take(old)
                    if stored is None:
                        claims.check_taken(client_id)
                        continue
                    anew = True
                else:
                    record = self._grants.record(request, old, epoch=epoch_after(peers, old.epoch))
                    if old.connected:
                        claimed = await claims.claim_held(record, old, ends=False)
                        if claimed is None:
                            continue
                        record = claimed
                    elif not await claims.claim(record, seen=old.epoch):
                        continue
                    stored = await parts.database.open_session(client_id)
                    if stored is None:
                        continue
                    cursor = stored.cursor
                    # Its client has ended it, as the node before says in time.
                    anew = not record.connected
                    # See ``open``.
                    resumed = old.protocol > 0 and not anew
                if anew:
                    await self.discard(stored, expired=bool(expired))
                    record = self._grants.record(request, None, epoch=stored.record.epoch + 1)
                    stored = None
                    cursor = Cursor(offset=parts.dispatcher.offset)
                    if not await claims.renew(record, cursor):
                        claims.check(client_id)
                        continue
            if not claims.check(client_id):
                continue
            session = self._entrance.session(connection, request, record, stored, cursor)
            session.stored = session.replaced = True
            session.position = cursor.offset
            await self._entrance.enter(session, stored)
            return session, resumed
        raise claims.lost_too_often()

    async def _claim_new(
        self, request: SessionRequest, cursor: Cursor, *, is_new: bool
    ) -> SessionRecord | None:
        """Claim a session that nobody has, if there is room; None = somebody was first."""
        grants, claims, peers = self._grants, self._claims, self._parts.peers
        assert peers is not None
        if is_new:
            await grants.promise_room(request)
        try:
            record = grants.record(request, None, epoch=epoch_after(peers, 0))
            return record if await claims.claim(record, seen=0, cursor=cursor) else None
        finally:
            if is_new:
                grants.redeem()

    def opened(self, session: LiveSession) -> None:
        """CONNACK is out: let what is owed follow."""
        parts = self._parts
        session.connack_sent = True
        if session.lagging:
            parts.catchup.start(session)
        for sub in list(session.subs.values()):
            if sub.backfill is not None:
                parts.backfill.resume(session, sub.name)
        for group in list(session.groups.values()):
            group.joined()

    def detach(self, session: LiveSession, *, send_will: bool) -> None:
        """The connection lets go of its session: keep it, or end it.

        All of it goes into one batch, with the will if that is due now.
        """
        parts = self._parts
        now_us = parts.pipeline.now_us
        session.is_open = False
        record = session.record
        session.will_due = record.will if send_will else None
        ends = record.expiry_s == 0
        del self._registry.live[session.client_id]
        self._grants.release_will(record.will)
        parts.metrics.sessions_connected -= 1
        if send_will and not session.taken_over:
            self._ban_enforcer.flapped(session.client_id)
        parts.cursors.forget(session)
        for sub in session.subs.values():
            parts.metrics.subscriptions -= 1
            if not sub.group:
                parts.router.remove(session, sub)
        writable = parts.committer.writable and not session.fenced
        may_be_given = bool(session.backfilling or session.groups)
        self._shared_subscriptions.left(session, ends=ends)
        parts.window_waiters.notify(session)
        parts.turn_budget.release(session)
        will = record.will if send_will else None
        will_at_us = 0
        if will is not None:
            due_us = will_due_us(will, disconnected_at_us=now_us, expiry_s=record.expiry_s)
            if not writable and session.stored:
                pass  # the store still has it, and it is due when the store is there again
            elif due_us <= now_us or not session.durable:
                session.will_said = self._wills.publish(record, session.identity)
                will = None
            else:
                will_at_us = due_us
        if ends or not session.stored:
            self._session_counts.removed(record.username)
        if not writable:
            return  # the store still has the session as it was
        batch = parts.committer.batch
        if parts.peers is not None:
            parts.committer.wait(Leaving(self._registry, session), LEVEL_OS)
        if ends:
            if session.stored:
                batch.discard_session(session.client_id, epoch=record.epoch)
            parts.pipeline.schedule()
            return
        parts.metrics.sessions_offline += 1
        session.outbound.dirty = True
        session.put_cursor(batch)
        doubtful = session.outbound.maybe_sent_offset
        is_in_doubt = may_be_given or doubtful > session.outbound.acked_offset
        # It is given nothing more, so where it stands stays, also if it is handed over later.
        session.lagging = True
        record = msgspec.structs.replace(
            record,
            connected=False,
            # Who has read that it is connected does not claim it so.
            epoch=record.epoch + (parts.peers is not None),
            changed_at_us=parts.pipeline.wall_us(),
            subscription_count=len(session.subs),
            will=will,
            will_at_us=will_at_us,
            expires_at_us=expires_at_us(now_us, record.expiry_s),
            cut_offset=doubtful if is_in_doubt else 0,
            taken_over=session.taken_over and parts.peers is not None,
        )
        session.record = record
        parts.metrics.subscriptions_offline += record.subscription_count
        batch.put_session(record)
        if self.deadlines is not None:
            self.deadlines.note(record.deadline_us)
        parts.pipeline.schedule()

    def change_expiry(self, session: LiveSession, expiry_s: int) -> None:
        """A new Session Expiry Interval at DISCONNECT (MQTT 5.0 section 3.14.2.2.2)."""
        expiry_s = min(expiry_s, self._parts.session_config.expiry_max_s)
        session.record = msgspec.structs.replace(session.record, expiry_s=expiry_s)

    def give(self, stored: StoredSession, username: str) -> None:
        """Let a session that nobody holds belong to a user; empty = to anonymous clients. The
        caller has acquired the client id."""
        parts = self._parts
        before = stored.record
        owner, method = given_to(username, method=before.method)
        record = msgspec.structs.replace(before, username=owner, method=method)
        self._ban_enforcer.belongs(record)
        self._session_counts.removed(before.username)
        self._session_counts.added(owner)
        parts.committer.batch.put_session(record)
        parts.log.warning(
            "session.owner_changed",
            client_id=before.client_id,
            username=owner,
            former_username=before.username,
        )
        parts.pipeline.schedule()

    async def discard(self, stored: StoredSession, *, expired: bool) -> None:
        """End a session that is not connected: its will is published, its shares pass on."""
        parts = self._parts
        record = stored.record
        await self._shared_subscriptions.reclaim(stored, ends=True)
        if record.will is not None and (record.will_at_us or record.connected):
            # [MQTT-3.1.2-8] the will is due when the session ends, delay or not: in the batch that
            # ends it, or who finds the session as it was says it again.
            self._wills.publish(record)
        parts.committer.batch.discard_session(record.client_id, epoch=record.epoch)
        self._session_counts.gone(record)
        if expired:
            parts.metrics.sessions_expired += 1
        else:
            parts.metrics.sessions_discarded += 1
        parts.pipeline.schedule()

    def _take_over(self, old: LiveSession, *, clean_start: bool) -> None:
        parts = self._parts
        client_id = old.client_id
        begun_us = parts.clock.monotonic_us()
        parts.metrics.sessions_taken_over += 1
        parts.log.info("session.taken_over", client_id=client_id)
        old.taken_over = True
        if clean_start:
            # [MQTT-3.1.4-3] and 3.1.2.5: the old session ends with this, so its will is due.
            old.record = msgspec.structs.replace(old.record, expiry_s=0)
        self._ban_enforcer.flapped(client_id)
        old.connection.close(SESSION_TAKEN_OVER)
        # The old owner's cursor must be there before the new one reads it.
        parts.pipeline.run()
        parts.metrics.takeover_seconds.observe(parts.clock.monotonic_us() - begun_us)
