"""How a session comes into memory: made or restored, counted, and with its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.delivery.held_session import SessionConnection
from perdure.broker.delivery.live_session import LiveSession
from perdure.content.stored import changed
from perdure.limits import INFLIGHT_MAX, PACKET_ID_MAX
from perdure.model import Cursor, SessionRecord, StoredSession, Subscription
from perdure.session.inbound import Inbound
from perdure.session.outbound import Outbound

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.delivery.live_session import SessionParts
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.request import SessionRequest
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.config.schema import SessionConfig

RESTORED_MAX: Final = 1_024
"""Subscriptions of a session that stand again in one turn: some 3 ms."""


@final
class SessionEntrance:
    """Brings sessions among the live ones; ``SessionLifecycle`` says which and when.

    Args:
        parts: what every part stands on.
        ban_enforcer, registry, session_counts, shared_subscriptions: what else it uses.
    """

    def __init__(
        self,
        parts: SessionParts,
        *,
        ban_enforcer: BanEnforcer,
        registry: Registry,
        session_counts: SessionCounts,
        shared_subscriptions: SharedSubscriptions,
    ) -> None:
        self._parts = parts
        self._ban_enforcer: BanEnforcer = ban_enforcer
        self._registry: Registry = registry
        self._session_counts: SessionCounts = session_counts
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions

    def session(
        self,
        connection: SessionConnection,
        request: SessionRequest,
        record: SessionRecord,
        stored: StoredSession | None,
        cursor: Cursor,
    ) -> LiveSession:
        """A session in memory: a new one, or what was stored under its next owner."""
        parts = self._parts
        return LiveSession(
            parts,
            record,
            # In a cluster all are: another node must find what this one leaves.
            durable=request.expiry_s > 0 or stored is not None or parts.peers is not None,
            connection=connection,
            identity=request.identity,
            inbound=Inbound(
                stored.awaiting_release if stored else (),
                # 3.1.1 knows no Receive Maximum: only its packet identifiers are a bound.
                receive_maximum=parts.mqtt_config.receive_maximum
                if request.protocol >= 5
                else PACKET_ID_MAX,
            ),
            outbound=Outbound(
                cursor,
                window_max=min(request.receive_maximum, parts.session_config.inflight_max),
                catch_up_max=min(request.receive_maximum, _catch_up_window(parts.session_config)),
                maybe_sent_offset=record.cut_offset,
            ),
        )

    async def enter(self, session: LiveSession, stored: StoredSession | None) -> None:
        """Count a session among the live ones; a resumed one has its subscriptions again.

        Many of them stand again some in each turn; whatever happens to the session, or to stored
        content filters, meanwhile happens to those that are there.
        """
        parts = self._parts
        self._ban_enforcer.belongs(session.record)
        if stored is not None:
            session.resumed = True
            session.lagging = True
            parts.metrics.sessions_resumed += 1
            self._session_counts.gone(stored.record)
        else:
            parts.metrics.sessions_created += 1
        self._session_counts.added(session.record.username)
        self._registry.live[session.client_id] = session
        parts.metrics.sessions_connected += 1
        if stored is not None:
            await self._restore_subscriptions(session, stored.subscriptions)

    def _as_filtered_now(
        self, session: LiveSession, subs: tuple[Subscription, ...]
    ) -> list[Subscription]:
        """Stored subscriptions, with stored content filters that have changed since."""
        parts = self._parts
        found: list[Subscription] = []
        for sub in subs:
            others = changed(sub, parts.stored_filters.get(sub.where_id)) if sub.where_id else ()
            for other in others:
                parts.committer.batch.put_subscription(
                    session.client_id, other, epoch=session.record.epoch
                )
            found += others or (sub,)
        return found

    async def _restore_subscriptions(
        self, session: LiveSession, subs: tuple[Subscription, ...]
    ) -> None:
        for first in range(0, len(subs), RESTORED_MAX):
            if first:
                await self._parts.turn_budget.step(session)
            some = subs[first : first + RESTORED_MAX]
            for sub in self._as_filtered_now(session, some):
                self._restore(session, sub)

    def _restore(self, session: LiveSession, sub: Subscription) -> None:
        parts = self._parts
        session.subscription_bytes += sub.size
        if sub.until_offset:
            session.ended.append(sub)
            return
        session.subs[sub.name] = sub
        if sub.backfill is not None:
            session.backfilling += 1
        parts.metrics.subscriptions += 1
        if sub.group:
            self._shared_subscriptions.join(session, sub)
        else:
            parts.router.put(session, sub)


def _catch_up_window(config: SessionConfig) -> int:
    """Who has set a smaller window means all sessions."""
    if config.inflight_max < INFLIGHT_MAX:
        return config.inflight_max
    return config.inflight_catch_up_max
