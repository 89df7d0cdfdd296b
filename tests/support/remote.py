"""A server in memory for ``storage.remote``, which fails when it is told to.

``ServerState`` is what a server keeps through every loss of a connection; a ``MemoryDriver`` is
one broker's way to it. Obviously right rather than fast: real drivers are compared with it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import final

from perdure.errors import Fenced, StorageError, StorageLocked, StorageUnavailable
from perdure.storage.contract import ReadResult
from perdure.storage.device_queue import QUEUE_LIMIT_MAX, NewEntry
from perdure.storage.remote.driver import TABLES, Claim, Kind, Owner, Row, Transaction


@final
class ServerState:
    """What is stored, and the faults of the server.

    Attributes:
        number: of the last transaction.
        writer: token of the claim that holds.
        is_held: the writer is alive.
        is_down: nothing can be reached.
        lose_in: transactions until a connection is lost; -1 = none is.
        lose_after: the lost transaction was applied before.
        refuse_with: every transaction is refused with this.
        gate: awaited by each transaction; None = none waits.
        commits: transactions applied.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[Owner, dict[bytes, bytes]]] = {table: {} for table in TABLES}
        self.queues: dict[str, dict[int, NewEntry]] = {}
        self.number = 0
        self.writer = 0
        self.is_held = False
        self.is_down = False
        self.lose_in = -1
        self.lose_after = False
        self.refuse_with: StorageError | None = None
        self.gate: asyncio.Event | None = None
        self.commits: list[Transaction] = []

    def apply(self, transaction: Transaction) -> None:
        """All of a transaction, in the order that ``Transaction`` says."""
        for table, owner in transaction.dropped:
            self.tables[table].pop(owner, None)
        for (table, owner), through in transaction.trimmed.items():
            rows = self.tables[table].get(owner, {})
            for key in [key for key in rows if key <= through]:
                del rows[key]
        for (table, owner), puts in transaction.puts.items():
            rows = self.tables[table].setdefault(owner, {})
            for key, value in puts.items():
                if value is None:
                    rows.pop(key, None)
                else:
                    assert TABLES[table] is not Kind.NAMES or not value
                    rows[key] = value
        for client_id in transaction.discarded:
            self.queues.pop(client_id, None)
        for client_id, serial in transaction.queue_trims.items():
            queue = self.queues.get(client_id, {})
            for each in [each for each in queue if each <= serial]:
                del queue[each]
        for client_id, entries in transaction.appends.items():
            queue = self.queues.setdefault(client_id, {})
            for entry in entries:
                assert entry.serial > max(queue, default=0), "queues grow at their end"
                queue[entry.serial] = entry
            assert len(queue) <= QUEUE_LIMIT_MAX
        self.number = transaction.number
        self.commits.append(transaction)


@final
class MemoryDriver:
    """A ``storage.remote.driver.Driver`` on a ``ServerState``."""

    def __init__(self, state: ServerState, *, queue_max: int = 65_535) -> None:
        self.state = state
        self.queue_max = queue_max
        self._token = 0
        self._is_connected = False

    @property
    def place(self) -> str:
        return "memory:"

    @property
    def is_connected(self) -> bool:
        return self._is_connected and not self.state.is_down

    async def probe(self) -> None:
        """Nothing can be wrong."""

    async def look(self) -> bool:
        """Connect for reading alone."""
        self._is_connected = not self.state.is_down
        self._token = -1
        self._require()
        return True

    async def claim(self) -> Claim:
        state = self.state
        self._is_connected = False
        if state.is_down:
            raise StorageUnavailable("memory: is down")
        if not self._token:
            if state.is_held:
                raise StorageLocked("memory: is in use by another broker")
        elif state.writer != self._token:
            raise Fenced("memory: has another writer")
        state.writer += 1
        state.is_held = True
        self._token = state.writer
        self._is_connected = True
        return Claim(state.number)

    async def commit(self, transaction: Transaction) -> None:
        state = self.state
        self._require()
        if state.gate is not None:
            await state.gate.wait()
        if state.refuse_with is not None:
            raise state.refuse_with
        if state.writer != self._token:
            raise Fenced("memory: has another writer")
        loses = state.lose_in == 0
        if state.lose_in >= 0:
            state.lose_in -= 1
        if not loses or state.lose_after:
            assert transaction.number == state.number + 1
            state.apply(transaction)
        if loses:
            self._is_connected = False
            raise StorageUnavailable("memory: the connection is lost")

    async def get(self, rows: Sequence[tuple[str, Owner, bytes]]) -> list[bytes | None]:
        self._require()
        tables = self.state.tables
        return [tables[table].get(owner, {}).get(key) for table, owner, key in rows]

    async def scan(
        self,
        table: str,
        owner: Owner,
        *,
        start: bytes,
        end: bytes,
        limit: int,
        names_only: bool = False,
    ) -> list[Row]:
        self._require()
        rows = self.state.tables[table].get(owner, {})
        keys = sorted(rows)
        first = bisect_left(keys, start)
        last = bisect_left(keys, end) if end else len(keys)
        return [(key, rows[key]) for key in keys[first:last][:limit]]

    async def rows_of(self, table: str, owners: Sequence[Owner]) -> list[list[Row]]:
        self._require()
        found = self.state.tables[table]
        return [sorted(found.get(owner, {}).items()) for owner in owners]

    async def queue_sizes(self, client_ids: Sequence[str]) -> list[int]:
        self._require()
        return [len(self.state.queues.get(client_id, ())) for client_id in client_ids]

    async def read_queue(
        self, client_id: str, *, after_serial: int, until_serial: int, limit: int, bytes_max: int
    ) -> ReadResult:
        self._require()
        queue = self.state.queues.get(client_id, {})
        serials = sorted(queue)
        first = bisect_right(serials, after_serial)
        last = bisect_right(serials, until_serial)
        messages = [queue[serial].message for serial in serials[first:last]]
        size = 0
        for index, message in enumerate(messages):
            size += len(message.payload)
            if index and (index >= limit or (bytes_max and size > bytes_max)):
                return ReadResult(messages[:index], messages[index - 1].offset)
        return ReadResult(messages, until_serial)

    async def close(self) -> None:
        if self._is_connected and self.state.writer == self._token:
            self.state.is_held = False
        self._is_connected = False

    def _require(self) -> None:
        if self.state.is_down:
            self._is_connected = False
        if not self._is_connected:
            raise StorageUnavailable("memory: there is no connection")
