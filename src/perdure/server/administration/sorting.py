"""A page of sessions in another order than that of their client ids.

There is no index by anything else: one in memory would cost some 100 bytes for each of a million
sessions that are away, one in the store a write for each connect. So an order is had by looking at
all sessions that the filters name, for each page, and is refused where that is too many to look at.
What is connected is in memory, and of that ten times as many may be.

Invariant: the work of a page is bounded as in ``listing``, and no more records are held than
those of a page and ``GATHERED``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from perdure.admin.problems import Refused
from perdure.admin.records.sessions import ListSessions, SessionPage, State
from perdure.admin.wire import decode_given
from perdure.model import SessionRecord
from perdure.server.administration.listing import (
    SCAN_MAX,
    SKIPPED_PER_ROW,
    LiveTable,
    Passed,
    SessionQuery,
    candidates,
    current,
    decode_cursor,
    encode_cursor,
    list_sessions,
)
from perdure.server.inspect import Stored, node_of, session_row
from perdure.server.turns import Turns

GATHERED: Final = 256
"""Sessions that are gathered before the first ones of them are kept, a part of a millisecond."""

LOOKED_AT_ONCE: Final = 16
"""Sessions in memory that are looked at before it is asked how long that took."""

_STATES: Final[tuple[State, ...]] = ("connected", "offline", "expired")


class _Place(NamedTuple):
    """Where a session stands in the order."""

    value: int
    client_id: bytes


class _Held(NamedTuple):
    """A session that may be on the page, and its place."""

    place: _Place
    record: SessionRecord
    subscriptions: int
    node: str | None


_COLUMNS: Final[Mapping[str, Callable[[SessionRecord, State, int], int]]] = {
    "changed_at": lambda record, _state, _subs: record.changed_at_us,
    "created_at": lambda record, _state, _subs: record.created_at_us,
    "dropped_count": lambda record, _state, _subs: record.dropped_count,
    "state": lambda _record, state, _subs: _STATES.index(state),
    "subscription_count": lambda _record, _state, subs: subs,
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
    turns = Turns(pauses=live is not None)
    is_whole = not (request.prefix or request.client_id_like)
    if live is not None and _is_in_memory(request, live):
        await _from_memory(order, wanted, live, request.prefix, turns)
    elif is_whole and (estimated_total or 0) > SCAN_MAX:
        raise _too_many(SCAN_MAX)  # without looking at that many first
    else:
        await _from_store(order, wanted, database, request, now_us, live, turns)
    page, following = order.page()
    return SessionPage(
        items=[
            session_row(
                held.record,
                now_us,
                running=live is not None,
                skew_us=skew_us,
                node=held.node,
                subscription_count=held.subscriptions,
            )
            for held in page
        ],
        next_cursor=following,
        estimated_total=order.count,
    )


async def _from_memory(
    order: _Order, wanted: SessionQuery, live: LiveTable, prefix: str, turns: Turns
) -> None:
    """All connected sessions."""
    most = SCAN_MAX * SKIPPED_PER_ROW
    if len(live) > most:
        raise _too_many(most)
    for number, held in enumerate(live.sessions()):
        record = held.record
        client_id = record.client_id
        is_named = client_id.startswith(prefix) and wanted.names(client_id)
        if is_named and wanted.takes(record, "connected", live.node):
            order.add(record, "connected", len(held.subs), live.node)
        if not number % LOOKED_AT_ONCE:
            await turns.step()


async def _from_store(
    order: _Order,
    wanted: SessionQuery,
    database: Stored,
    request: ListSessions,
    now_us: int,
    live: LiveTable | None,
    turns: Turns,
) -> None:
    """Stored sessions, as they are now, and those that are in memory alone."""
    left = SCAN_MAX * SKIPPED_PER_ROW
    async with contextlib.aclosing(candidates(database, request, "", live)) as found:
        async for record in found:
            if isinstance(record, Passed):
                left -= record.how_many
            elif not wanted.names(record.client_id):
                left -= 1
            else:
                left -= SKIPPED_PER_ROW
                shown = current(record, live, now_us)
                now, subs = shown.record, shown.subscriptions
                node = node_of(now, shown.here)
                if wanted.takes(now, shown.state, node):
                    count = now.subscription_count if subs is None else subs
                    order.add(now, shown.state, count, node)
            if left < 0:
                raise _too_many(SCAN_MAX)
            await turns.step()


def _is_in_memory(request: ListSessions, live: LiveTable) -> bool:
    """Whether nothing is read from the store for a list."""
    is_connected = request.connected or request.state == "connected"
    return live.is_alone and bool(is_connected)


class _Order:
    """Gathers sessions, and keeps the first ones behind the page before.

    Attributes:
        count: how many there were, on all pages.
    """

    def __init__(self, request: ListSessions) -> None:
        self.count = 0
        self._sort = request.sort
        self._kept = request.limit + 1
        """Those of a page, and one that tells that there are more."""
        self._value = _COLUMNS[request.sort.removeprefix("-")]
        self._sign = -1 if request.sort.startswith("-") else 1
        self._after = _place_of(request)
        self._found: list[_Held] = []
        self._last: int | None = None
        """Signed value of the last one that was kept; greater ones are on no page before it."""

    def add(
        self, record: SessionRecord, state: State, subscriptions: int, node: str | None
    ) -> None:
        """One more."""
        self.count += 1
        value = self._value(record, state, subscriptions)
        if self._last is not None and value * self._sign > self._last:
            return
        place = _Place(value, record.client_id.encode())
        after = self._after
        if after is not None and not (place > after if self._sign > 0 else place < after):
            return
        self._found.append(_Held(place, record, subscriptions, node))
        if len(self._found) >= self._kept + GATHERED:
            self._keep()

    def page(self) -> tuple[list[_Held], str | None]:
        """The page, and the cursor of the next one."""
        self._keep()
        page = self._found[: self._kept - 1]
        if len(self._found) < self._kept:
            return page, None
        value, client_id = page[-1].place
        cursor = msgspec.json.encode([self._sort, value, client_id.decode()]).decode()
        return page, encode_cursor(cursor)

    def _keep(self) -> None:
        """The first ones of those that were gathered."""
        self._found.sort(key=_place, reverse=self._sign < 0)
        del self._found[self._kept :]
        if len(self._found) == self._kept:
            self._last = self._found[-1].place.value * self._sign


def _place(found: _Held) -> _Place:
    return found.place


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


def _too_many(most: int) -> Refused:
    return Refused(
        "bad_request",
        f"more than {most} sessions are not put in order for a page",
        hint="narrow the list by prefix, or to those that are connected; /top has the connected "
        "ones with the longest queue",
    )
