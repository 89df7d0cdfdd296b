"""The metrics that are states, not counts: brought up to date before somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.monitor.clock_watch import ClockWatch
    from perdure.broker.shared.subscriptions import SharedSubscriptions

HELD_UP_US: Final = 5_000_000
"""How long a session is held up before the log is told: one that is slow has moved on by then."""

STEP_SESSIONS: Final = 256
"""Sessions that are looked at in one step, some 0.1 ms."""


@final
class Gauges:
    """Sets the gauges of ``Metrics``.

    Args:
        core: what every part stands on.
        ban_enforcer, clock_watch, registry, shared_subscriptions: what is looked at.

    Attributes:
        held_up: sessions that wait for one acknowledgement: its serial number, and since when
            (monotonic time; -1 = the log was told).
        updated_us: when all connected sessions were last looked at, monotonic time.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        ban_enforcer: BanEnforcer,
        clock_watch: ClockWatch,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
    ) -> None:
        self._core = core
        self._ban_enforcer = ban_enforcer
        self._clock_watch = clock_watch
        self._registry = registry
        self._shared_subscriptions = shared_subscriptions
        self.held_up: dict[str, tuple[int, int]] = {}
        self.updated_us = 0

    def update(self) -> None:
        """Bring the metrics that are states, not counts, up to date."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """As ``update``; who asks may let others be served after each step, of ``STEP_SESSIONS``.

        While the store fails, those that describe it stay as they were: it may not be open.
        """
        metrics = self._core.metrics
        database = self._core.database
        metrics.retained_messages = database.retained_count
        metrics.retained_bytes = database.retained_bytes
        metrics.bans_temporary = len(self._ban_enforcer.temporary())
        metrics.shared_groups = len(self._shared_subscriptions.groups)
        yield from self._look_at_sessions()
        self.updated_us = self._core.clock.monotonic_us()
        committer = self._core.committer
        backlog = metrics.storage_backlog_messages = committer.backlog()
        age_us = committer.log_sync.age_us(self.updated_us) if backlog else 0
        metrics.storage_backlog_seconds = age_us // 1_000_000
        metrics.clock_offset_lead_seconds = self._clock_watch.lead_us() // 1_000_000
        if not committer.writable:
            return
        generations = database.generations()
        metrics.storage_generations = len(generations)
        metrics.storage_messages = sum(info.message_count for info in generations)
        metrics.storage_bytes = sum(info.bytes for info in generations)
        metrics.storage_streams = sum(info.stream_count for info in generations)

    def _look_at_sessions(self) -> Iterator[None]:
        """What all connected sessions hold together; and those that wait for one acknowledgement,
        of each of which the log is told once."""
        inflight = pending = oldest = 0
        waiting: set[str] = set()
        now_us = self._core.clock.monotonic_us()
        for number, session in enumerate(list(self._registry.live.values()), start=1):
            if not number % STEP_SESSIONS:
                yield
            outbound = session.outbound
            pending += len(outbound.pending)
            count = outbound.inflight.count
            if not count:
                continue
            inflight += count
            offset = outbound.oldest_offset()
            if offset and (not oldest or offset < oldest):
                oldest = offset
            if outbound.is_held_up():
                # Noted at once: another look may begin before this one has ended.
                waiting.add(session.client_id)
                known = self.held_up.get(session.client_id, (0, 0))
                self.held_up[session.client_id] = self._held_up(session, known, now_us)
        metrics = self._core.metrics
        metrics.inflight_messages = inflight
        metrics.pending_messages = pending
        # Offsets are times.
        age_us = max(0, self._core.clock.wall_us() - oldest) if oldest else 0
        metrics.oldest_unacked_seconds = age_us // 1_000_000
        for client_id in self.held_up.keys() - waiting:
            del self.held_up[client_id]
        metrics.sessions_held_up = len(waiting)

    def _held_up(
        self, session: LiveSession, known: tuple[int, int], now_us: int
    ) -> tuple[int, int]:
        """What is to be known of a session that waits, as ``held_up`` has it."""
        outbound = session.outbound
        head = outbound.oldest()
        assert head is not None
        serial, since_us = known
        if serial != head.serial:
            return head.serial, now_us
        if since_us < 0 or now_us - since_us < HELD_UP_US:
            return head.serial, since_us
        self._core.log.warning(
            "session.held_up",
            client_id=session.client_id,
            username=session.identity.username,
            packet_id=head.packet_id,
            age_s=max(0, self._core.clock.now_us() - head.offset) // 1_000_000,
            behind=outbound.next_serial - 1 - head.serial,
            hint="the client does not acknowledge this message; its topic: perdure sessions show",
        )
        return head.serial, -1
