"""Alarms, and which sessions have most to do or are slowest."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.operation import Http, Operation, Page, Request

TOP_MAX: Final = 200
"""Sessions that one answer shows."""

Sort: TypeAlias = Literal["oldest", "pending", "inflight", "rate_out", "subs", "idle", "client"]
TopLimit: TypeAlias = Annotated[int, Meta(ge=1, le=TOP_MAX)]


@final
class AlarmRow(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm.

    Attributes:
        name: what of; its threshold is the setting of that name in `alarms`.
        state: ``raised`` or ``cleared``.
        message: for operators.
        value, threshold: in the unit of the setting.
        raised_at, raised_at_us, cleared_at, cleared_at_us: when.
    """

    name: str
    state: Literal["raised", "cleared"]
    message: str
    value: float
    threshold: float
    raised_at: str | None
    raised_at_us: int
    cleared_at: str | None
    cleared_at_us: int


@final
class AlarmPage(Page[AlarmRow], frozen=True, kw_only=True):
    """Alarms, newest first."""


class ListAlarms(Request[AlarmPage], frozen=True, kw_only=True):
    """Alarms that are raised; with ``ended`` the last ones that were, too."""

    ended: bool = False


@final
class TopRow(msgspec.Struct, frozen=True, kw_only=True):
    """A connected session.

    Attributes:
        client_id, username, address: who.
        subs: subscriptions.
        pending: messages in memory that wait for its window.
        inflight: messages sent and not acknowledged.
        rate_out: QoS 1 and 2 messages that it was given in a second, since the last look; null = it
            is the first one.
        oldest_s: age of the oldest message that it was sent and has not acknowledged, seconds.
        lag_s: how far delivery is behind: the greater of that and of what it has still to read.
        is_behind: it reads the log instead of being given what comes.
        idle_s: since something came from it.
    """

    client_id: str
    username: str | None
    address: str
    subs: int
    pending: int
    inflight: int
    rate_out: float | None
    oldest_s: float
    lag_s: float
    is_behind: bool
    idle_s: float


@final
class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The first sessions by a column.

    Attributes:
        items: sessions.
        sessions: how many are connected.
        rate_in, rate_out: messages of all clients in a second, of the last ten.
    """

    items: list[TopRow]
    sessions: int
    rate_in: float | None
    rate_out: float | None


class GetTop(Request[Top], frozen=True, kw_only=True):
    """The first sessions by a column, the greatest first (``client``: by name)."""

    sort: Sort = "oldest"
    limit: TopLimit = 20


@final
class SlowPage(Page[TopRow], frozen=True, kw_only=True):
    """The slowest first."""


class ListSlow(Request[SlowPage], frozen=True, kw_only=True):
    """Connected sessions whose delivery is behind."""

    limit: TopLimit = 20
    lag_s: Annotated[float, Meta(ge=0, description="least lag, seconds")] = 1.0


OPERATIONS: Final = (
    Operation(
        name="alarms.list",
        summary="Alarms that are raised",
        request=ListAlarms,
        result=AlarmPage,
        http=Http("GET", "/alarms"),
    ),
    Operation(
        name="sessions.top",
        summary="Connected sessions with most to do",
        request=GetTop,
        result=Top,
        http=Http("GET", "/top"),
    ),
    Operation(
        name="sessions.slow",
        summary="Slow subscribers",
        request=ListSlow,
        result=SlowPage,
        http=Http("GET", "/slow-subscribers"),
    ),
)
