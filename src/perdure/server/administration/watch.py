"""Operations on alarms, and on which sessions have most to do.

All connected sessions are looked at for that, in short steps (``turns``): a look at 100,000
sessions keeps nobody waiting for longer than one of them takes. There is one look in a second at
most, whoever asks.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.records.watch import (
    AlarmPage,
    AlarmRow,
    GetTop,
    ListAlarms,
    ListSlow,
    SlowPage,
    Sort,
    Top,
    TopRow,
)
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.server.administration.history import Recorder
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.turns import Turns
from perdure.server.alarms.book import Alarm
from perdure.server.alarms.watch import AlarmWatch

LOOK_US: Final = 1_000_000
"""Least time between two looks."""

FORGET_US: Final = 30_000_000
"""Rates need the look before; one that is older says nothing, and is forgotten."""

_KEYS: Final[Mapping[Sort, Callable[[TopRow], float]]] = {
    "oldest": lambda row: row.oldest_s,
    "pending": lambda row: row.pending,
    "inflight": lambda row: row.inflight,
    "rate_out": lambda row: row.rate_out or 0.0,
    "subs": lambda row: row.subs,
}


@final
class WatchOperations:
    """Answers what is asked of alarms and of busy sessions.

    Args:
        services: the parts of the broker.
        recorder: knows the rates of all.
        alarms: watches.
    """

    def __init__(self, services: Services, recorder: Recorder, alarms: AlarmWatch) -> None:
        self._services = services
        self._recorder = recorder
        self._alarms = alarms
        self._lock = asyncio.Lock()
        self._rows: list[TopRow] = []
        self._looked_us = 0
        self._serials: dict[str, int] = {}

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {ListAlarms: self.alarms, GetTop: self.top, ListSlow: self.slow}

    async def alarms(self, request: ListAlarms, _call: Call) -> AlarmPage:
        """Those that are raised, and on request those that were."""
        book = self._alarms.book
        found = [*book.raised.values(), *(book.ended if request.ended else ())]
        found.sort(key=lambda alarm: alarm.raised_us, reverse=True)
        return AlarmPage(items=[_alarm_row(alarm) for alarm in found], estimated_total=len(found))

    async def top(self, request: GetTop, _call: Call) -> Top:
        """The first by a column."""
        rows = await self._look()
        if request.sort == "client":
            items = heapq.nsmallest(request.limit, rows, key=lambda row: row.client_id)
        else:
            items = heapq.nlargest(request.limit, rows, key=_KEYS[request.sort])
        rates = self._recorder.rates()
        return Top(
            items=items,
            sessions=len(rows),
            rate_in=rates.messages_received,
            rate_out=rates.messages_delivered,
        )

    async def slow(self, request: ListSlow, _call: Call) -> SlowPage:
        """Those whose delivery is behind."""
        behind = [row for row in await self._look() if row.lag_s >= request.lag_s]
        items = heapq.nlargest(request.limit, behind, key=lambda row: row.lag_s)
        return SlowPage(items=items, estimated_total=len(behind))

    async def _look(self) -> list[TopRow]:
        """All connected sessions, as of a second ago at most."""
        async with self._lock:
            now_us = self._services.clock.monotonic_us()
            elapsed_us = now_us - self._looked_us
            if self._rows and elapsed_us < LOOK_US:
                return self._rows
            before = self._serials if elapsed_us < FORGET_US else {}
            rows: list[TopRow] = []
            serials: dict[str, int] = {}
            turns = Turns()
            for session in list(self._services.registry.live.values()):
                serial = session.outbound.next_serial
                serials[session.client_id] = serial
                earlier = before.get(session.client_id)
                rate = None
                if earlier is not None:
                    rate = round(max(0, serial - earlier) * 1_000_000 / elapsed_us, 1)
                rows.append(self._row(session, rate))
                await turns.step()
            self._rows, self._serials, self._looked_us = rows, serials, now_us
            return rows

    def _row(self, session: LiveSession, rate_out: float | None) -> TopRow:
        clock = self._services.clock
        wall_us = clock.wall_us()
        outbound = session.outbound
        oldest = outbound.oldest_offset()
        oldest_s = max(0, wall_us - oldest) / 1_000_000 if oldest else 0.0
        behind_s = max(0, session.lag_us(wall_us)) / 1_000_000
        connection = session.connection
        received_us = getattr(connection, "received_us", 0)
        return TopRow(
            client_id=session.client_id,
            username=session.identity.username,
            address=connection.peer.address,
            subs=len(session.subs),
            pending=len(outbound.pending),
            inflight=outbound.inflight.count,
            rate_out=rate_out,
            oldest_s=round(oldest_s, 3),
            lag_s=round(max(oldest_s, behind_s), 3),
            is_behind=session.lagging,
            idle_s=round(max(0, clock.monotonic_us() - received_us) / 1_000_000, 3),
        )


def _alarm_row(alarm: Alarm) -> AlarmRow:
    return AlarmRow(
        name=alarm.name,
        state="cleared" if alarm.cleared_us else "raised",
        message=alarm.message,
        value=round(alarm.value, 3),
        threshold=alarm.threshold,
        raised_at=format_time(alarm.raised_us),
        raised_at_us=alarm.raised_us,
        cleared_at=format_time(alarm.cleared_us) if alarm.cleared_us else None,
        cleared_at_us=alarm.cleared_us,
    )
