"""TBMQ 1.x's two tables as a source, in whichever release's columns.

Ranges are intervals of client ids in the database's own order, so that each is one walk along the
primary key. A range is read in one transaction that sees one state and changes nothing: first the
few columns from which identifiers are resolved, then the rows, streamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, final

import asyncpg

from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline.jobs.migrate.contract import PAGE_BYTES, PAGE_ENTRIES, Range, Settings
from perdure.pipeline.tbmq import rows
from perdure.pipeline.tbmq.identifiers import resolve
from perdure.pipeline.tbmq.message_json import DamagedEntry
from perdure.pipeline.tbmq.pending import Losses, PendingEntry, PendingPage

_REFUSALS: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
"""Trying again does not mend these; a wrong password is one of the first kind."""
_PREFETCH: Final = 200
_CONNECT_TIMEOUT_S: Final = 10

_CLIENTS: Final = f"""
    SELECT client_id, sum(n)::bigint AS n FROM (
        SELECT client_id, count(*) AS n FROM {rows.MESSAGES} GROUP BY client_id
        UNION ALL SELECT client_id, 0 FROM {rows.SESSIONS}
    ) each_table GROUP BY client_id ORDER BY client_id
"""  # noqa: S608 - names of ours
_COLUMNS: Final = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
"""


def _within(part: Range) -> tuple[str, list[str]]:
    """The condition of a range, with constants only where there is a bound: one with OR would
    not walk along the index."""
    bounds = [(">", part.after), ("<=", part.until)]
    given = [(operator, value) for operator, value in bounds if value is not None]
    terms = [f"client_id {operator} ${number}" for number, (operator, _) in enumerate(given, 1)]
    return " AND ".join(terms) or "true", [value for _, value in given]


@final
class _Plan:
    """What becomes of the rows of one client, in order."""

    __slots__ = ("identifiers", "is_begun", "last_packet_id", "losses", "place")

    def __init__(self, identifiers: list[int | None], last_packet_id: int, losses: Losses) -> None:
        self.identifiers = identifiers
        """For each row the identifier that it gets, 0 or None = it is left out."""
        self.last_packet_id = last_packet_id
        self.losses = losses
        self.place = 0
        self.is_begun = False


@final
class PostgresSource:
    """The tables of a TBMQ that is stopped.

    Args:
        url: ``postgresql://user:password@host:port/database``.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None

    async def plan(self, entries_max: int) -> AsyncIterator[Range]:
        """See ``Source.plan``."""
        with _translated():
            async for part in self._plan(entries_max):
                yield part

    async def _plan(self, entries_max: int) -> AsyncIterator[Range]:
        connection = await self._connect()
        await self._message_columns(connection)
        number = entries = 0
        after: str | None = None
        until: str | None = None
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            async for client_id, count in connection.cursor(_CLIENTS, prefetch=5_000):
                if entries and entries + count > entries_max:
                    yield Range(number, entries, after, until)
                    number, entries, after = number + 1, 0, until
                # A client without messages costs something, too.
                entries += max(1, count)
                until = client_id
        if entries:
            yield Range(number, entries, after, until)

    async def read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        """See ``Source.read``."""
        with _translated():
            async for page in self._read(part, settings):
                yield page

    async def _read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        connection = await self._connect()
        columns = await self._message_columns(connection)
        within, bounds = _within(part)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            plans = await self._plans(connection, columns, part, settings)
            query = (
                f"SELECT {rows.select_list(columns)} FROM {rows.MESSAGES} "  # noqa: S608
                f"WHERE {within} ORDER BY client_id, serial_number"
            )
            async for page in _pages(
                connection.cursor(query, *bounds, prefetch=_PREFETCH), plans, settings
            ):
                yield page
        for client_id, plan in plans.items():
            if not plan.is_begun:
                yield PendingPage(client_id, plan.last_packet_id, [], losses=plan.losses)

    async def _plans(
        self, connection: Any, columns: set[str], part: Range, settings: Settings
    ) -> dict[str, _Plan]:
        """Resolve the identifiers of a range."""
        within, bounds = _within(part)
        light: dict[str, list[Mapping[str, Any]]] = {}
        query = (
            f"SELECT {rows.select_list(columns, light=True)} FROM {rows.MESSAGES} "  # noqa: S608
            f"WHERE {within} ORDER BY client_id, serial_number"
        )
        for row in await connection.fetch(query, *bounds):
            light.setdefault(row["client_id"], []).append(row)
        query = f"SELECT client_id, last_packet_id FROM {rows.SESSIONS} WHERE {within}"  # noqa: S608
        last = {
            row["client_id"]: row["last_packet_id"] or 0
            for row in await connection.fetch(query, *bounds)
        }
        return {
            client_id: _plan(light.get(client_id, []), last.get(client_id, 0), settings)
            for client_id in {**light, **last}
        }

    async def _message_columns(self, connection: Any) -> set[str]:
        found = {row[0] for row in await connection.fetch(_COLUMNS, rows.MESSAGES)}
        missing = rows.missing_columns(found)
        if missing:
            raise ConfigError(
                f"the database has no table {rows.MESSAGES} of TBMQ 1.x: "
                f"{'column ' + missing[0] + ' is not there' if found else 'it is not there'}"
            )
        if not await connection.fetch(_COLUMNS, rows.SESSIONS):
            raise ConfigError(f"the database has no table {rows.SESSIONS} of TBMQ 1.x")
        return found

    async def _connect(self) -> Any:
        if self._connection is None:
            with _translated():
                self._connection = await asyncpg.connect(self._url, timeout=_CONNECT_TIMEOUT_S)
        return self._connection

    async def is_ours(self) -> bool:
        """Whether Perdure has written queues there: then the columns do not say everything."""
        connection = await self._connect()
        return bool(await connection.fetchval("SELECT to_regclass($1)", "perdure_queue"))

    async def close(self) -> None:
        """See ``Source.close``."""
        if self._connection is not None:
            await self._connection.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """What the server or the way to it says, as an error of ours."""
    try:
        yield
    except _REFUSALS as error:
        raise ConfigError(f"PostgreSQL refuses: {error}") from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StorageUnavailable(
            f"PostgreSQL does not answer: {error or type(error).__name__}",
            hint="run the migration again to go on",
        ) from error


def _plan(light: list[Mapping[str, Any]], last_packet_id: int, settings: Settings) -> _Plan:
    losses = Losses()
    owed = [rows.is_owed(row, ttl_s=settings.ttl_s, now_us=settings.now_us) for row in light]
    losses.expired = owed.count(False)
    surplus = max(0, sum(owed) - settings.limit)
    for index, is_owed in enumerate(owed):
        if surplus and is_owed and light[index]["packet_type"] != "PUBREL":
            owed[index] = False
            surplus -= 1
            losses.over_limit += 1
    kept = [row for row, is_owed in zip(light, owed, strict=True) if is_owed]
    resolved = resolve(
        [row["packet_id"] or 0 for row in kept],
        [row["packet_type"] == "PUBREL" for row in kept],
        # Also of rows that stay behind: a client may know the identifiers.
        last_packet_id=last_packet_id
        or next((row["packet_id"] for row in reversed(light) if row["packet_id"]), 0),
        unique=settings.unique,
    )
    losses.renumbered, losses.repeated = resolved.renumbered, resolved.repeated
    numbers = iter(resolved.identifiers)
    return _Plan(
        [next(numbers) if is_owed else None for is_owed in owed], resolved.last_packet_id, losses
    )


async def _pages(
    records: Any, plans: dict[str, _Plan], settings: Settings
) -> AsyncIterator[PendingPage]:
    """Rows in order of client and serial number as pages."""
    client_id = ""
    entries: list[PendingEntry] = []
    losses = Losses()
    size = 0
    plan: _Plan | None = None
    is_first = True
    async for row in records:
        if plan is None or row["client_id"] != client_id:
            if plan is not None:
                yield PendingPage(client_id, plan.last_packet_id, entries, is_first, True, losses)
            client_id, plan = row["client_id"], plans[row["client_id"]]
            plan.is_begun = is_first = True
            entries, losses, size = [], plan.losses, 0
        plan.place += 1
        identifier = plan.identifiers[plan.place - 1]
        if not identifier:
            continue
        if len(entries) >= PAGE_ENTRIES or size >= PAGE_BYTES:
            yield PendingPage(client_id, plan.last_packet_id, entries, is_first, False, losses)
            entries, losses, size, is_first = [], Losses(), 0, False
        try:
            entry = rows.parse_row(
                row, place=plan.place, packet_id=identifier, ttl_s=settings.ttl_s
            )
        except DamagedEntry as error:
            losses.damaged.append(f"{client_id!r} row {row['serial_number']}: {error}")
            continue
        entries.append(entry)
        size += len(entry.payload)
    if plan is not None:
        yield PendingPage(client_id, plan.last_packet_id, entries, is_first, True, losses)
