"""Answers the admin socket from a broker: what is in memory first, then what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import final

import msgspec

from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.errors import ConfigError, StorageUnavailable
from perdure.model import StoredSession
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION
from perdure.pure import build
from perdure.server.admin import Row
from perdure.server.bans import BanKeeper
from perdure.server.explain import What, explain_session
from perdure.server.inspect import (
    LiveView,
    describe,
    session_details,
    session_row,
    session_rows,
    state_of,
)
from perdure.server.rules import Rules
from perdure.storage.contract import TakesStructure
from perdure.topic.proposal import Structure

"""Reason code of the DISCONNECT that a kick sends (MQTT 5.0 section 3.14.2.1)."""


@final
class BrokerAdmin:
    """``admin.AdminHandler`` for a running broker.

    Args:
        services: the parts of the broker.
        version: release.
        started_us: wall time of the start.
        bans: keeps the bans.
        is_superuser: whether a user is exempt from the ACL.
    """

    def __init__(
        self,
        services: Services,
        *,
        version: str,
        started_us: int,
        bans: BanKeeper,
        is_superuser: Callable[[str | None], bool] = lambda _: False,
    ) -> None:
        self._is_superuser = is_superuser
        self._services = services
        self._bans = bans
        self._version = version
        self._started_us = started_us
        self._begun_us = services.clock.monotonic_us()

    async def sessions(self, *, prefix: str, state: str) -> AsyncIterator[Row]:
        """Stored sessions, and in their places those that are only in memory."""
        services = self._services
        now_us, skew_us = self._times()
        unstored = sorted(
            (
                session
                for session in services.registry.live.values()
                if not session.stored and session.client_id.startswith(prefix)
            ),
            key=lambda session: session.client_id.encode(),
            reverse=True,
        )
        wanted = state or None

        def unstored_rows(before: bytes | None) -> list[Row]:
            rows: list[Row] = []
            while unstored and (before is None or unstored[-1].client_id.encode() < before):
                record = unstored.pop().record
                if wanted in {None, state_of(record, now_us, running=True)}:
                    rows.append(session_row(record, now_us, running=True, skew_us=skew_us))
            return rows

        async for row in session_rows(
            services.database, now_us, running=True, prefix=prefix, skew_us=skew_us
        ):
            for earlier in unstored_rows(row["client_id"].encode()):
                yield earlier
            if wanted in {None, row["state"]}:
                yield row
        for last in unstored_rows(None):
            yield last

    async def session(self, client_id: str) -> Row | None:
        """Details; of a connected session as it is now."""
        services = self._services
        now_us, skew_us = self._times()
        database = services.database
        live = services.registry.live.get(client_id)
        if live is None:
            return await session_details(database, client_id, now_us, running=True, skew_us=skew_us)
        return await describe(
            database, _as_stored(live), now_us, running=True, live=_view(live), skew_us=skew_us
        )

    async def explain(self, client_id: str, topic: str, what: What) -> Row | None:
        """Why a message on a topic is, or is not, delivered."""
        services = self._services
        live = services.registry.live.get(client_id)
        if live is not None:
            stored = _as_stored(live)
        else:
            found_stored = await services.database.open_session(client_id)
            if found_stored is None:
                return None
            stored = found_stored
        now_us, skew_us = self._times()
        found = await explain_session(
            services.database,
            stored,
            topic,
            now_us,
            running=True,
            skew_us=skew_us,
            live=None if live is None else _view(live),
            rules=Rules(services, stored.record, self._is_superuser),
            what=what,
        )
        row: Row = msgspec.to_builtins(found)
        return row

    async def discard(self, client_id: str) -> bool:
        """End a session now: its connection, its will, its shares, its state."""
        services = self._services
        self._check_writable()
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
                stored = await services.database.open_session(client_id)
                if stored is None:
                    return False
                await services.sessions.discard(stored, expired=False)
            services.pipeline.run()
        finally:
            services.registry.release(client_id)
        await services.committer.sync_now()
        return True

    async def set_owner(self, client_id: str, username: str) -> bool:
        """Give a session to a user; who holds it is disconnected, as after ``kick``."""
        services = self._services
        self._check_writable()
        await services.registry.acquire(client_id)
        try:
            services.pipeline.now_us = services.clock.now_us()
            live = services.registry.live.get(client_id)
            if live is not None:
                live.connection.close(ADMINISTRATIVE_ACTION)
            services.pipeline.run()  # what the connection has left is read below
            stored = await services.database.open_session(client_id)
            if stored is None:
                return False
            services.sessions.give(stored, username)
            services.pipeline.run()
        finally:
            services.registry.release(client_id)
        await services.committer.sync_now()
        return True

    async def kick(self, client_id: str) -> bool:
        """Take leave of a client; the session stays as after any disconnect."""
        live = self._services.registry.live.get(client_id)
        if live is None:
            return False
        self._services.pipeline.now_us = self._services.clock.now_us()
        live.connection.close(ADMINISTRATIVE_ACTION)
        self._services.pipeline.run()  # whoever lists sessions next sees it
        return True

    async def rotate(self, structure: Structure | None) -> Row:
        """Begin a new generation."""
        services = self._services
        self._check_writable()
        database, wall_us = services.database, services.clock.wall_us()
        if structure is None:
            info = database.rotate(wall_us)
        elif isinstance(database, TakesStructure):
            info = database.rotate_to(structure, wall_us)
        else:
            raise ConfigError("the log of this broker learns no topic structures", path="storage")
        services.log.info("generation.added", generation=info.generation)
        return {"generation": info.generation, "created_at": format_time(info.created_at_us)}

    def bans(self) -> list[Row]:
        """All bans."""
        return self._bans.rows()

    async def ban(self, kind: str, value: str, *, reason: str, until_us: int) -> Row:
        """Ban durably and disconnect whom it means."""
        return await self._bans.add(kind, value, reason=reason, until_us=until_us)

    async def unban(self, kind: str, value: str) -> Row | None:
        """Take a ban back."""
        return await self._bans.remove(kind, value)

    def stats(self) -> Row:
        """What ``perdure status`` shows."""
        services = self._services
        metrics = services.metrics
        services.gauges.update()
        return {
            "version": self._version,
            "build": build(),
            "started_at": format_time(self._started_us),
            "uptime_s": (services.clock.monotonic_us() - self._begun_us) // 1_000_000,
            "storage": self._storage(),
            "storage_reason": self._storage_reason(),
            "connections": metrics.connections_now,
            "sessions_connected": metrics.sessions_connected,
            "sessions_offline": metrics.sessions_offline,
            "subscriptions": metrics.subscriptions + metrics.subscriptions_offline,
            "subscriptions_connected": metrics.subscriptions,
            "subscriptions_offline": metrics.subscriptions_offline,
            "inflight_messages": metrics.inflight_messages,
            "pending_messages": metrics.pending_messages,
            "retained_messages": metrics.retained_messages,
            "messages_received": metrics.messages_received,
            "messages_delivered": metrics.messages_delivered,
            "messages_dropped": metrics.messages_dropped,
            "log_messages": metrics.storage_messages,
            "log_bytes": metrics.storage_bytes,
            "generations": metrics.storage_generations,
        }

    def _times(self) -> tuple[int, int]:
        """Steady time, by which sessions end, and what the wall clock is ahead of it now."""
        clock = self._services.clock
        now_us = clock.now_us()
        return now_us, clock.wall_us() - now_us

    def _storage(self) -> str:
        """``ok``, ``refusing`` (the disk budget is used up) or ``failed``."""
        if not self._services.committer.writable:
            return "failed"
        return "refusing" if self._services.publish_path.disk_full else "ok"

    def _storage_reason(self) -> str:
        """Why it is not ``ok``, or cannot keep to its budget."""
        failure = self._services.committer.failure
        return failure.message if failure is not None else self._services.retention.disk_over

    def _check_writable(self) -> None:
        if not self._services.committer.writable:
            raise StorageUnavailable("the store has failed and has not recovered yet")


def _as_stored(live: LiveSession) -> StoredSession:
    """A session in memory as the store would have it now."""
    return StoredSession(
        live.record,
        live.outbound.cursor(),
        (*live.subs.values(), *live.ended),
        tuple(sorted(live.inbound.awaiting_release)),
    )


def _view(live: LiveSession) -> LiveView:
    return LiveView(
        inflight=live.outbound.inflight.count,
        inflight_max=live.outbound.window_max,
        pending=len(live.outbound.pending),
        catching_up=live.lagging,
        paused=live.sender.paused,
    )
