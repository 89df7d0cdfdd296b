"""Operations on alarms, and on which sessions have most to do.

All connected sessions are looked at for that, in short steps (``turns``): a look at 100,000
sessions keeps nobody waiting for longer than one of them takes. Of most of them it wants one value
alone, the one they are put in order by; rows are made of those that are shown. The same question is
answered once in a second, whoever asks.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, final

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
from perdure.server.administration.listing import SORTED_AT_ONCE_MAX
from perdure.server.administration.service import Call, Handler
from perdure.server.alarms.book import Alarm
from perdure.server.alarms.watch import AlarmWatch
from perdure.server.turns import Turns

LOOK_US: Final = 1_000_000
"""Least time between two looks."""

FORGET_US: Final = 30_000_000
"""Rates need the look before; one that is older says nothing, and is forgotten."""

LOOKED_AT_ONCE: Final = 16
"""Sessions that are looked at before it is asked how long that took."""

_Value: TypeAlias = Callable[[LiveSession], float]

_ROW_KEYS: Final[Mapping[Sort, Callable[[TopRow], float]]] = {
    "oldest": lambda row: row.oldest_s,
    "pending": lambda row: row.pending,
    "inflight": lambda row: row.inflight,
    "rate_out": lambda row: row.rate_out or 0.0,
    "subs": lambda row: row.subs,
    "idle": lambda row: row.idle_s,
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
        self._looked_us = -LOOK_US
        self._elapsed_us = 0
        """Between the last look and the one before it."""
        self._serials: dict[str, int] = {}
        """Of the last look: the next serial number of each session."""
        self._before: dict[str, int] = {}
        """The same of the look before it; empty = that says nothing."""
        self._answers: dict[tuple[str, int, float], tuple[list[TopRow], int]] = {}
        """What was answered since the last look: rows, and how many there are."""

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
        items, count = await self._first(request.sort, request.limit)
        rates = self._recorder.rates()
        return Top(
            items=items,
            sessions=count,
            rate_in=rates.messages_received,
            rate_out=rates.messages_delivered,
        )

    async def slow(self, request: ListSlow, _call: Call) -> SlowPage:
        """Those whose delivery is behind."""
        items, count = await self._first("slow", request.limit, request.lag_s)
        return SlowPage(items=items, estimated_total=count)

    async def _first(
        self, by: Sort | Literal["slow"], limit: int, lag_s: float = 0.0
    ) -> tuple[list[TopRow], int]:
        """Rows of the first ones, and how many there are; as of a second ago at most."""
        async with self._lock:
            if self._services.clock.monotonic_us() - self._looked_us >= LOOK_US:
                await self._look()
            question = by, limit, lag_s
            found = self._answers.get(question)
            if found is None:
                if by == "slow":
                    found = await self._slowest(limit, lag_s)
                elif by == "client":
                    rows = self._rows(self._live(await self._by_name(limit)))
                    found = rows, len(self._serials)
                else:
                    first = await self._greatest(limit, self._value(by))
                    rows = sorted(self._rows(first), key=_ROW_KEYS[by], reverse=True)
                    found = rows, len(self._serials)
                self._answers[question] = found
            return found

    async def _look(self) -> None:
        """Take note of who is connected, and of how much each was given by now."""
        now_us = self._services.clock.monotonic_us()
        serials: dict[str, int] = {}
        turns = Turns()
        for number, session in enumerate(list(self._services.registry.live.values())):
            serials[session.client_id] = session.outbound.next_serial
            if not number % LOOKED_AT_ONCE:
                await turns.step()
        self._elapsed_us = now_us - self._looked_us
        self._before = self._serials if self._elapsed_us < FORGET_US else {}
        self._serials, self._looked_us = serials, now_us
        self._answers.clear()

    async def _greatest(self, limit: int, value: _Value) -> list[LiveSession]:
        """The first by a value."""
        first: list[tuple[float, int, LiveSession]] = []
        turns = Turns()
        for number, session in enumerate(self._live(list(self._serials))):
            valued = value(session), -number, session
            if len(first) < limit:
                heapq.heappush(first, valued)
            elif valued[:2] > first[0][:2]:
                heapq.heapreplace(first, valued)
            if not number % LOOKED_AT_ONCE:
                await turns.step()
        return [session for _, _, session in sorted(first, reverse=True)]

    async def _by_name(self, limit: int) -> list[str]:
        """The first client ids."""
        names, first = list(self._serials), list[str]()
        turns = Turns()
        for begin in range(0, len(names), SORTED_AT_ONCE_MAX):
            first = heapq.nsmallest(limit, first + names[begin : begin + SORTED_AT_ONCE_MAX])
            await turns.step()
        return first

    async def _slowest(self, limit: int, lag_s: float) -> tuple[list[TopRow], int]:
        """The first by how far they are behind, and how many are so far."""
        count = 0

        def lag(session: LiveSession) -> float:
            nonlocal count
            found = round(self._lag_s(session), 3)
            count += found >= lag_s
            return found

        rows = self._rows(await self._greatest(limit, lag))
        rows.sort(key=lambda row: row.lag_s, reverse=True)
        return [row for row in rows if row.lag_s >= lag_s], count

    def _live(self, client_ids: Iterable[str]) -> Iterator[LiveSession]:
        """Those that are connected still."""
        live = self._services.registry.live
        return filter(None, map(live.get, client_ids))

    def _value(self, by: Sort) -> _Value:
        """What sessions are put in order by."""
        values: Mapping[Sort, _Value] = {
            "oldest": self._oldest_s,
            "pending": lambda session: len(session.outbound.pending),
            "inflight": lambda session: session.outbound.inflight.count,
            "rate_out": lambda session: self._rate_out(session.client_id) or 0.0,
            "subs": lambda session: len(session.subs),
            "idle": self._idle_s,
        }
        return values[by]

    def _oldest_s(self, session: LiveSession) -> float:
        """Age of the oldest message that was sent and is not acknowledged."""
        oldest = session.outbound.oldest_offset()
        return max(0, self._services.clock.wall_us() - oldest) / 1_000_000 if oldest else 0.0

    def _lag_s(self, session: LiveSession) -> float:
        """How far its delivery is behind."""
        behind_us = session.lag_us(self._services.clock.wall_us())
        return max(self._oldest_s(session), max(0, behind_us) / 1_000_000)

    def _idle_s(self, session: LiveSession) -> float:
        """Time since something came from its client."""
        received_us = getattr(session.connection, "received_us", 0)
        return max(0, self._services.clock.monotonic_us() - received_us) / 1_000_000

    def _rate_out(self, client_id: str) -> float | None:
        """Messages that it was given in a second."""
        earlier = self._before.get(client_id)
        if earlier is None or self._elapsed_us <= 0:
            return None
        given = max(0, self._serials[client_id] - earlier)
        return round(given * 1_000_000 / self._elapsed_us, 1)

    def _rows(self, sessions: Iterable[LiveSession]) -> list[TopRow]:
        return [self._row(session) for session in sessions]

    def _row(self, session: LiveSession) -> TopRow:
        connection = session.connection
        return TopRow(
            client_id=session.client_id,
            username=session.identity.username,
            address=connection.peer.address,
            subs=len(session.subs),
            pending=len(session.outbound.pending),
            inflight=session.outbound.inflight.count,
            rate_out=self._rate_out(session.client_id),
            oldest_s=round(self._oldest_s(session), 3),
            lag_s=round(self._lag_s(session), 3),
            is_behind=session.lagging,
            idle_s=round(self._idle_s(session), 3),
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
        cleared_at=format_time(alarm.cleared_us),
        cleared_at_us=alarm.cleared_us,
    )
