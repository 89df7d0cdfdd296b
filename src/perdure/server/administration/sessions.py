"""Operations on sessions: what is in memory first, then what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.explain import ExplainSession, Explanation, What
from perdure.admin.records.sessions import (
    BulkDiscard,
    BulkKick,
    DiscardSession,
    GetSession,
    GiveSession,
    KickSession,
    ListSessions,
    LiveView,
    Outcome,
    OutcomeList,
    SessionDetail,
    SessionPage,
    SessionRow,
)
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.services import Services
from perdure.errors import StorageUnavailable
from perdure.model import StoredSession
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION
from perdure.server.administration.listing import LiveTable
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions_elsewhere import SessionsElsewhere
from perdure.server.administration.sorting import sessions_in_order
from perdure.server.explain import explain_session
from perdure.server.inspect import describe, session_row
from perdure.server.rules import Rules

CLOSED_PER_TURN: Final = 32
"""Connections closed in one turn of the loop."""

SKEW_STEP_US: Final = 10_000


@final
class SessionOperations:
    """Answers what is asked of sessions.

    Args:
        services: the parts of the broker.
        live: connected sessions.
        is_superuser: whether a user is exempt from the ACL.
    """

    def __init__(
        self,
        services: Services,
        live: LiveTable,
        *,
        is_superuser: Callable[[str | None], bool] = lambda _: False,
    ) -> None:
        self._is_superuser = is_superuser
        self._services = services
        self._elsewhere = SessionsElsewhere(services)
        self._live = live
        self._node = live.node

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListSessions: self.list_page,
            GetSession: self.show,
            ExplainSession: self.explain,
            DiscardSession: self.discard,
            KickSession: self.kick,
            GiveSession: self.give,
            BulkKick: self.kick_all,
            BulkDiscard: self.discard_all,
        }

    async def list_page(self, request: ListSessions, _call: Call) -> SessionPage:
        """Stored sessions, and in their places those that are only in memory."""
        now_us, skew_us = times(self._services)
        return await sessions_in_order(
            self._services.database,
            request,
            now_us,
            live=self._live,
            skew_us=skew_us,
            estimated_total=self._services.session_counts.sessions,
        )

    async def show(self, request: GetSession, _call: Call) -> SessionDetail:
        """Details; of a connected session as it is now."""
        live, stored = await self._find(request.client_id)
        now_us, skew_us = times(self._services)
        return await describe(
            self._services.database,
            stored,
            now_us,
            running=True,
            live=None if live is None else _view(live),
            skew_us=skew_us,
            node=None if live is None else self._node,
            seam=self._services.seam(),
        )

    async def explain(self, request: ExplainSession, _call: Call) -> Explanation:
        """Why a message on a topic is, or is not, delivered."""
        services = self._services
        live, stored = await self._find(request.client_id)
        now_us, skew_us = times(services)
        return await explain_session(
            services.database,
            stored,
            request.topic,
            now_us,
            running=True,
            skew_us=skew_us,
            live=None if live is None else _view(live),
            rules=Rules(services, stored.record, self._is_superuser),
            what=What(publisher=request.publisher, qos=request.qos, size=request.size),
        )

    async def discard(self, request: DiscardSession, call: Call) -> Outcome:
        """End a session now: its connection, its will, its shares, its state."""
        call.before = await self._row(request.client_id)
        if not await self._end(request.client_id):
            raise unknown_session(request.client_id)
        return Outcome(request.client_id, "discarded")

    async def kick(self, request: KickSession, call: Call) -> Outcome:
        """Take leave of a client; the session stays as after any disconnect."""
        call.before = await self._row(request.client_id)
        if not await self._disconnect(request.client_id):
            raise Refused("not_found", f"{request.client_id!r} is not connected")
        call.after = await self._row(request.client_id)
        return Outcome(request.client_id, "kicked")

    async def give(self, request: GiveSession, call: Call) -> Outcome:
        """Give a session to a user; who holds it is disconnected, as after ``kick``."""
        call.before = await self._row(request.client_id)
        if not await self._hand_over(request.client_id, request.username):
            raise unknown_session(request.client_id)
        call.after = await self._row(request.client_id)
        return Outcome(request.client_id, "given")

    async def kick_all(self, request: BulkKick, call: Call) -> OutcomeList:
        """Take leave of several clients."""
        items: list[Outcome] = []
        call.after = items  # what was done is recorded also if it does not get to the end
        for number, client_id in enumerate(request.client_ids, start=1):
            done = await self._disconnect(client_id)
            items.append(Outcome(client_id, "kicked" if done else "not_found"))
            if not number % CLOSED_PER_TURN:
                await asyncio.sleep(0)
        return OutcomeList(items)

    async def discard_all(self, request: BulkDiscard, call: Call) -> OutcomeList:
        """End several sessions."""
        items: list[Outcome] = []
        call.after = items
        for client_id in request.client_ids:
            done = await self._end(client_id)
            items.append(Outcome(client_id, "discarded" if done else "not_found"))
        return OutcomeList(items)

    async def _find(self, client_id: str) -> tuple[LiveSession | None, StoredSession]:
        live = self._services.registry.live.get(client_id)
        if live is not None:
            return live, as_stored(live)
        stored = await self._services.database.open_session(client_id)
        if stored is None:
            raise unknown_session(client_id)
        return None, stored

    async def _row(self, client_id: str) -> SessionRow | None:
        try:
            live, stored = await self._find(client_id)
        except Refused:
            return None
        now_us, skew_us = times(self._services)
        node = None if live is None else self._node
        return session_row(stored.record, now_us, running=True, skew_us=skew_us, node=node)

    async def _end(self, client_id: str) -> bool:
        """End a session now: its connection, its will, its shares, its state."""
        services = self._services
        check_writable(services)
        await services.registry.acquire(client_id)
        try:
            services.pipeline.now_us = services.clock.now_us()
            live = services.registry.live.get(client_id)
            if live is not None:
                # A session without expiry ends with its connection: one path for both.
                live.record = msgspec.structs.replace(live.record, expiry_s=0)
                live.connection.close(ADMINISTRATIVE_ACTION)
                services.metrics.sessions_discarded += 1
            else:
                if await self._elsewhere.dismiss(client_id, ends=True):
                    return True
                stored = await self._elsewhere.take(client_id)
                if stored is None:
                    return False
                await services.sessions.discard(stored, expired=False)
            services.pipeline.run()
        finally:
            services.registry.release(client_id)
        await services.committer.sync_now()
        return True

    async def _hand_over(self, client_id: str, username: str) -> bool:
        """Give a session to a user; who holds it is disconnected, as after ``kick``."""
        services = self._services
        check_writable(services)
        await services.registry.acquire(client_id)
        try:
            services.pipeline.now_us = services.clock.now_us()
            live = services.registry.live.get(client_id)
            if live is not None:
                live.connection.close(ADMINISTRATIVE_ACTION)
            else:
                await self._elsewhere.dismiss(client_id, ends=False)
            services.pipeline.run()  # what the connection has left is read below
            stored = await self._elsewhere.take(client_id)
            if stored is None:
                return False
            services.sessions.give(stored, username)
            services.pipeline.run()
        finally:
            services.registry.release(client_id)
        await services.committer.sync_now()
        return True

    async def _disconnect(self, client_id: str) -> bool:
        """Close a connection; False if there is none."""
        live = self._services.registry.live.get(client_id)
        if live is None:
            return await self._elsewhere.dismiss(client_id, ends=False)
        self._services.pipeline.now_us = self._services.clock.now_us()
        live.connection.close(ADMINISTRATIVE_ACTION)
        self._services.pipeline.run()  # whoever lists sessions next sees it
        return True


def unknown_session(client_id: str) -> Refused:
    """The refusal for a session that is not there."""
    return Refused("not_found", f"there is no session {client_id!r}")


def times(services: Services) -> tuple[int, int]:
    """Steady time, by which sessions end, and what the wall clock is ahead of it now."""
    now_us = services.clock.now_us()
    return now_us, stepped(services.clock.wall_us() - now_us)


def stepped(skew_us: int) -> int:
    """What one clock is ahead of another one, to ten milliseconds: they are read one after the
    other, and who asks twice shall be told the same moment."""
    return round(skew_us / SKEW_STEP_US) * SKEW_STEP_US


def check_writable(services: Services) -> None:
    """Make sure that the store takes changes.

    Raises:
        StorageUnavailable: it does not.
    """
    if not services.committer.writable:
        raise StorageUnavailable("the store has failed and has not recovered yet")


def as_stored(live: LiveSession) -> StoredSession:
    """A session in memory as the store would have it now."""
    return StoredSession(
        live.record,
        live.outbound.cursor(),
        (*live.subs.values(), *live.ended),
        tuple(sorted(live.inbound.awaiting_release)),
    )


def _view(live: LiveSession) -> LiveView:
    inflight, window = live.outbound.inflight.count, live.outbound.window_max
    if live.lagging:
        # As large as it is now: what is in flight may be kept as more runs, or fewer.
        window = max(window, inflight + live.outbound.catch_up_left())
    return LiveView(
        inflight=inflight,
        inflight_max=window,
        pending=len(live.outbound.pending),
        catching_up=live.lagging,
        paused=live.sender.paused,
        address=live.connection.peer.address,
        listener=live.connection.peer.listener,
        position=live.position,
    )
