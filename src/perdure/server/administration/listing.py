"""A page of sessions, from wherever they are: the store of a broker that runs or is stopped, and
the memory of the running one.

The work for a page is bounded whatever is asked for, and takes a turn of the loop for some rows
only. What is connected is found from memory, so that it needs no scan of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast, final

import msgspec

from perdure.admin.problems import Refused
from perdure.admin.records.sessions import ListSessions, SessionPage, SessionRow, State
from perdure.config.units import parse_time
from perdure.model import SessionRecord, Subscription
from perdure.server.inspect import Stored, node_of, session_row, state_of
from perdure.server.turns import Turns

SCAN_MAX: Final = 10_000
"""Sessions whose records are looked at for one page, some 50 milliseconds in short steps."""

SKIPPED_PER_ROW: Final = 10
"""Sessions of whom the name is enough, for the work that one costs whose record is read."""

NAMES_AT_ONCE: Final = 256
"""Names that are read in one go, some 0.2 ms."""

RECORDS_AT_ONCE: Final = 32
"""Of those, records that are read in one go, some 0.2 ms; a page is often full before the last."""

SORTED_AT_ONCE_MAX: Final = 1_024
"""Client ids that are sorted in one go, some 0.3 ms."""

MERGED_AT_ONCE: Final = 64
"""Of those, ids that are put in order with the others before it is asked how long that took."""

SNAPSHOT_US: Final = 2_000_000
"""How old the order of more of them may be."""


class Passed(NamedTuple):
    """Stored sessions that were passed over by their names.

    Attributes:
        client_id: the last one.
        how_many: with it.
    """

    client_id: str
    how_many: int


class Connected(Protocol):
    """A connected session, as far as a list shows it."""

    record: SessionRecord
    subs: dict[str, Subscription]

    @property
    def stored(self) -> bool:
        """It is in the store too."""
        ...


@final
class LiveTable:
    """Connected sessions in the order of their client ids.

    Args:
        live: by client id.
        monotonic_us: clock.
        node: name of this node.
        is_alone: there are no others, with connected sessions of their own.
    """

    def __init__(
        self,
        live: Mapping[str, Any],
        monotonic_us: Callable[[], int],
        *,
        node: str,
        is_alone: bool = True,
    ) -> None:
        self._live = cast("Mapping[str, Connected]", live)
        self._monotonic_us = monotonic_us
        self._snapshot: list[bytes] = []
        self._taken_us: int | None = None
        self._sorting = asyncio.Lock()
        self.node = node
        self.is_alone = is_alone

    def __len__(self) -> int:
        return len(self._live)

    def get(self, client_id: str) -> Connected | None:
        """A connected session."""
        return self._live.get(client_id)

    def sessions(self) -> list[Connected]:
        """All of them, in no order."""
        return list(self._live.values())

    async def ids(self) -> list[bytes]:
        """Client ids in UTF-8 order; of very many connected ones as of two seconds ago."""
        if len(self._live) <= SORTED_AT_ONCE_MAX:
            return sorted(map(str.encode, self._live))
        async with self._sorting:  # whoever asks meanwhile waits for the same order
            now_us = self._monotonic_us()
            if self._taken_us is None or now_us - self._taken_us > SNAPSHOT_US:
                self._snapshot = await _sorted_in_turns(list(self._live))
                self._taken_us = now_us
            return self._snapshot


async def _sorted_in_turns(names: list[str]) -> list[bytes]:
    runs, turns = [], Turns()
    for first in range(0, len(names), SORTED_AT_ONCE_MAX):
        runs.append(sorted(map(str.encode, names[first : first + SORTED_AT_ONCE_MAX])))
        await turns.step()
    merged: list[bytes] = []
    for item in heapq.merge(*runs):
        merged.append(item)
        if not len(merged) % MERGED_AT_ONCE:
            await turns.step()
    return merged


@final
class SessionQuery:
    """What a request asks for, ready to be compared."""

    def __init__(self, request: ListSessions, now_us: int) -> None:
        self._request = request
        try:
            self._from_us = _moment(request.created_from, now_us, 0)
            self._until_us = _moment(request.created_until, now_us, 2**63)
        except ValueError as error:
            raise Refused("bad_request", f"created_at: {error}") from error

    def names(self, client_id: str) -> bool:
        """Whether a session of this name may belong to the list."""
        return self._request.client_id_like in client_id

    def takes(self, record: SessionRecord, state: State, node: str | None) -> bool:
        """Whether a session whose name does belongs to the list: a row of each would cost more
        than to look."""
        request = self._request
        return (
            (request.connected is None or request.connected == (state == "connected"))
            and (request.state is None or request.state == state)
            and (request.username is None or request.username == record.username)
            and (request.node is None or request.node == node)
            and self._from_us <= record.created_at_us <= self._until_us
        )


class Current(NamedTuple):
    """A session as it is now: as the store has it, or as it is in memory where it is connected.

    Attributes:
        record: of it.
        state: of it.
        here: the node that has it in memory; None = none.
        subscriptions: how many it has in memory; None = the record tells.
    """

    record: SessionRecord
    state: State
    here: str | None
    subscriptions: int | None


def current(stored: SessionRecord, live: LiveTable | None, now_us: int) -> Current:
    """A stored session as it is now."""
    held = None if live is None else live.get(stored.client_id)
    record = stored if held is None else held.record
    return Current(
        record,
        state_of(record, now_us, running=live is not None),
        None if live is None or held is None else live.node,
        None if held is None else len(held.subs),
    )


def _moment(text: str, now_us: int, default: int) -> int:
    return parse_time(text, now_us) if text else default


async def list_sessions(
    database: Stored,
    request: ListSessions,
    now_us: int,
    *,
    live: LiveTable | None = None,
    skew_us: int = 0,
    estimated_total: int | None = None,
) -> SessionPage:
    """A page of sessions.

    Args:
        database: where they are.
        request: which of them.
        now_us: steady time.
        live: those that a running broker has in memory; None = none runs.
        skew_us: what the wall clock is ahead of steady time.
        estimated_total: all sessions.

    Raises:
        Refused: the cursor is none, or a moment.
    """
    wanted = SessionQuery(request, now_us + skew_us)
    after = decode_cursor(request.cursor)
    items: list[SessionRow] = []
    left, turns = SCAN_MAX * SKIPPED_PER_ROW, Turns(pauses=live is not None)
    async with contextlib.aclosing(candidates(database, request, after, live)) as found:
        async for record in found:
            if len(items) == request.limit or left <= 0:
                break
            after = record.client_id
            if isinstance(record, Passed) or not wanted.names(after):
                left -= record.how_many if isinstance(record, Passed) else 1
                await turns.step()
                continue
            left -= SKIPPED_PER_ROW
            now = current(record, live, now_us)
            if wanted.takes(now.record, now.state, node_of(now.record, now.here)):
                row = session_row(
                    now.record,
                    now_us,
                    running=live is not None,
                    skew_us=skew_us,
                    node=now.here,
                    subscription_count=now.subscriptions,
                )
                items.append(row)
            await turns.step()
        else:
            after = ""
    return SessionPage(
        items=items,
        next_cursor=encode_cursor(after) if after else None,
        # What was listed whole is known; the count of the store lacks what is in memory alone.
        estimated_total=len(items)
        if not request.cursor and not after
        else _total(request, live, estimated_total),
    )


def _total(request: ListSessions, live: LiveTable | None, total: int | None) -> int | None:
    """How many there are, if nothing but the connection is asked for."""
    plain = ListSessions(limit=request.limit, cursor=request.cursor, sort=request.sort)
    if request == plain:
        return total
    if live is None or not live.is_alone:
        return None
    if request != msgspec.structs.replace(plain, connected=request.connected):
        return None
    return len(live) if request.connected else None if total is None else total - len(live)


async def candidates(
    database: Stored, request: ListSessions, after: str, live: LiveTable | None
) -> AsyncGenerator[SessionRecord | Passed, None]:
    """Sessions above ``after`` with the prefix, in order; if a name must hold a text, stored ones
    whose names do not are passed over."""
    prefix = request.prefix
    first = prefix.encode()
    connected = iter(()) if live is None else _from(await live.ids(), first, after)
    is_alone = live is None or live.is_alone
    if is_alone and (request.connected or request.state == "connected"):
        for client_id in connected:
            held = None if live is None else live.get(client_id.decode())
            if held is not None:
                yield held.record
        return
    start = max(after, _before(prefix), key=str.encode)
    following = next(connected, None)
    async with contextlib.aclosing(_stored(database, request.client_id_like, start)) as stored:
        async for record in stored:
            key = record.client_id.encode()
            while following is not None and following < key:
                held = None if live is None else live.get(following.decode())
                if held is not None and not held.stored:
                    yield held.record
                following = next(connected, None)
            if following == key:
                following = next(connected, None)
            if key.startswith(first):
                yield record
            elif key > first:
                break
    while following is not None:
        held = None if live is None else live.get(following.decode())
        if held is not None and not held.stored:
            yield held.record
        following = next(connected, None)


async def _stored(
    database: Stored, like: str, start: str
) -> AsyncGenerator[SessionRecord | Passed, None]:
    """Stored sessions above one; of those whose names hold no such text only that they are
    there."""
    if not like:
        async for record in database.sessions(after=start):
            yield record
        return
    while True:
        names = await database.session_ids(after=start, limit=NAMES_AT_ONCE)
        wanted = [name for name in names if like in name]
        for first in range(0, len(wanted), RECORDS_AT_ONCE):
            for record in await database.session_records(wanted[first : first + RECORDS_AT_ONCE]):
                yield record
        if names:
            start = names[-1]
            yield Passed(start, len(names) - len(wanted))
        if len(names) < NAMES_AT_ONCE:
            return


def _before(prefix: str) -> str:
    """A client id below all that begin with a prefix, with next to nothing in between: what is
    stepped over there is not counted."""
    if not prefix:
        return ""
    last = ord(prefix[-1]) - 1
    if last < 0:
        return prefix[:-1]
    if last in range(0xD800, 0xE000):  # surrogates are no characters
        last = 0xD7FF
    return f"{prefix[:-1]}{chr(last)}\U0010ffff"


def _from(ids: list[bytes], prefix: bytes, after: str) -> Iterator[bytes]:
    """Sorted ids with a prefix, above ``after``."""
    position = max(bisect_right(ids, after.encode()) if after else 0, bisect_left(ids, prefix))
    for index in range(position, len(ids)):
        if not ids[index].startswith(prefix):
            return
        yield ids[index]


def encode_cursor(position: str) -> str:
    """A place in a list, as clients see it."""
    return urlsafe_b64encode(position.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """The place that a cursor stands for; empty = the beginning.

    Raises:
        Refused: it is no cursor.
    """
    try:
        return b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise Refused("bad_request", "the cursor is not one of this list") from error
