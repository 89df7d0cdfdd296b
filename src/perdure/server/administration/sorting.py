"""A page of sessions in another order than that of their client ids.

There is no index by anything else: one in memory would cost some 100 bytes for each of a million
sessions that are away, one in the store a write for each connect. So an order is had by looking at
all sessions that the filters name, for each page, and is refused where that is too many to look at.
What is connected is in memory, and of that ten times as many may be.

Invariant: the work of a page is bounded as in ``listing``, and never more than two pages of records
are held.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from perdure.admin.problems import Refused
from perdure.admin.records.sessions import ListSessions, SessionPage, SessionRow, State
from perdure.admin.wire import decode_given
from perdure.model import SessionRecord
from perdure.server.administration.listing import (
    SCAN_MAX,
    SKIPPED_PER_ROW,
    LiveTable,
    Passed,
    SessionQuery,
    candidates,
    decode_cursor,
    encode_cursor,
    list_sessions,
)
from perdure.server.administration.turns import Turns
from perdure.server.inspect import Stored, node_of, session_row, state_of

GATHERED: Final = 256
"""Sessions that are gathered before the first ones of them are kept, some 0.3 milliseconds."""

_STATES: Final[tuple[State, ...]] = ("connected", "offline", "expired")


class _Held(NamedTuple):
    """A session that may be on the page."""

    record: SessionRecord
    state: State
    subscriptions: int
    node: str | None


class _Place(NamedTuple):
    """Where a session stands in the order."""

    value: int
    client_id: bytes


_COLUMNS: Final[Mapping[str, Callable[[_Held], int]]] = {
    "changed_at": lambda held: held.record.changed_at_us,
    "created_at": lambda held: held.record.created_at_us,
    "dropped_count": lambda held: held.record.dropped_count,
    "state": lambda held: _STATES.index(held.state),
    "subscription_count": lambda held: held.subscriptions,
}


async def sessions_in_order(
    database: Stored,
    request: ListSessions,
    now_us: int,
    *,
    live: LiveTable | None = None,
    skew_us: int = 0,
    estimated_total: int | None = None,
) -> SessionPage:
    """A page of sessions in the order that is asked for; arguments as of ``list_sessions``.

    Raises:
        Refused: the cursor is none of this order, a moment is none, or there are more sessions
            than can be looked at for an order.
    """
    if request.sort in ("", "client_id"):
        return await list_sessions(
            database,
            request,
            now_us,
            live=live,
            skew_us=skew_us,
            estimated_total=estimated_total,
        )
    order = _Order(request)
    wanted = SessionQuery(request, now_us + skew_us)
    left, turns = SCAN_MAX * SKIPPED_PER_ROW, Turns(pauses=live is not None)
    count = 0
    in_memory = is_in_memory(request, live)
    async with contextlib.aclosing(candidates(database, request, "", live)) as found:
        async for record in found:
            if isinstance(record, Passed):
                left -= record.how_many
            else:
                is_named = wanted.names(record.client_id)
                left -= SKIPPED_PER_ROW if is_named and not in_memory else 1
                if is_named:
                    held = _held(record, now_us, live)
                    if wanted.takes(held.record, held.state, held.node):
                        count += 1
                        order.add(held)
            if left < 0:
                raise _too_many(in_memory=in_memory)
            await turns.step()
    page, following = order.page()
    return SessionPage(
        items=[_row(held, now_us, skew_us, running=live is not None) for held in page],
        next_cursor=following,
        estimated_total=count,
    )


def is_in_memory(request: ListSessions, live: LiveTable | None) -> bool:
    """Whether nothing is read from the store for a list."""
    is_connected = request.connected or request.state == "connected"
    return live is not None and live.is_alone and bool(is_connected)


class _Order:
    """Gathers sessions, and keeps the first ones behind the page before."""

    def __init__(self, request: ListSessions) -> None:
        self._sort = request.sort
        self._limit = request.limit
        self._column = _COLUMNS[request.sort.removeprefix("-")]
        self._is_falling = request.sort.startswith("-")
        self._after = _place_of(request)
        self._found: list[tuple[_Place, _Held]] = []

    def add(self, held: _Held) -> None:
        """One more."""
        place = _Place(self._column(held), held.record.client_id.encode())
        if self._after is not None and not (
            place < self._after if self._is_falling else place > self._after
        ):
            return
        self._found.append((place, held))
        if len(self._found) > self._limit + GATHERED:
            self._keep()

    def page(self) -> tuple[list[_Held], str | None]:
        """The page, and the cursor of the next one."""
        self._keep()
        page = self._found[: self._limit]
        if len(self._found) <= self._limit:
            return [held for _, held in page], None
        value, client_id = page[-1][0]
        cursor = msgspec.json.encode([self._sort, value, client_id.decode()]).decode()
        return [held for _, held in page], encode_cursor(cursor)

    def _keep(self) -> None:
        """Those of the page, and one that tells that there are more."""
        choose = heapq.nlargest if self._is_falling else heapq.nsmallest
        self._found = choose(self._limit + 1, self._found, key=_place)


def _place(found: tuple[_Place, _Held]) -> _Place:
    return found[0]


def _place_of(request: ListSessions) -> _Place | None:
    """Where the page before has ended."""
    if not request.cursor:
        return None
    try:
        sort, value, client_id = decode_given(decode_cursor(request.cursor), tuple[str, int, str])
    except ValueError:
        sort, value, client_id = "", 0, ""
    if sort != request.sort:
        raise Refused("bad_request", "the cursor is not one of this order")
    return _Place(value, client_id.encode())


def _held(record: SessionRecord, now_us: int, live: LiveTable | None) -> _Held:
    """A session as it is now."""
    connected = None if live is None else live.get(record.client_id)
    here = live.node if live is not None and connected is not None else None
    now = record if connected is None else connected.record
    return _Held(
        now,
        state_of(now, now_us, running=live is not None),
        now.subscription_count if connected is None else len(connected.subs),
        node_of(now, here),
    )


def _row(held: _Held, now_us: int, skew_us: int, *, running: bool) -> SessionRow:
    return session_row(
        held.record,
        now_us,
        running=running,
        skew_us=skew_us,
        node=held.node,
        subscription_count=held.subscriptions,
    )


def _too_many(*, in_memory: bool) -> Refused:
    most = SCAN_MAX * SKIPPED_PER_ROW if in_memory else SCAN_MAX
    return Refused(
        "bad_request",
        f"more than {most} sessions are not put in order for a page",
        hint="narrow the list by prefix, username, state or created_at>; /top has the connected "
        "ones with the longest queue",
    )
