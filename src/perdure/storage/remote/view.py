"""A broker's whole state in a server, looked at from outside: what it holds, and its log.

Claims nothing and writes nothing, so it works beside the broker. What is read first and what is
read last may differ by what the broker has written meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Self, final

from perdure.model import GroupRecord, InboxEntry, SessionRecord, StoredSession
from perdure.storage.codec import decode_group
from perdure.storage.contract import Finding, GenerationInfo, ReadResult
from perdure.storage.remote import rows
from perdure.storage.remote.check import Checker
from perdure.storage.remote.driver import CLIENTS, GROUPS, INBOX, META, RETAINED, Reads
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.reader import (
    PAGE,
    StateReader,
    pages,
    read_entries,
    read_session,
    session_page,
)
from perdure.storage.tail import Tail

ALL: Final = 1 << 31
"""Rows of an owner that has few."""


@final
class StateView:
    """A state in a server; closes its driver.

    Attributes:
        last_offset: what was written later is not read.
    """

    def __init__(self, driver: Reads, log: RemoteLog, last_offset: int) -> None:
        self._driver = driver
        self._log = log
        self.last_offset = last_offset

    @classmethod
    async def open(cls, driver: Reads) -> Self | None:
        """The state that a connected driver finds; None = there is none.

        Raises:
            FormatTooNew: a later release wrote it.
        """
        found = await StateReader.open(driver)
        if found is None:
            return None
        log = RemoteLog(driver, Tail(messages_max=0, bytes_max=0, floor=0))
        meta = await driver.scan(META, rows.NOBODY, start=b"", end=b"", limit=ALL)
        await log.load(meta, last_offset=found.last_offset)
        return cls(driver, log, found.last_offset)

    def generations(self) -> list[GenerationInfo]:
        """See ``Database.generations``."""
        return self._log.info()

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """See ``Database.read``."""
        return await self._log.read(filters, after_offset, until_offset, limit, bytes_max)

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> int:
        """See ``Database.count``."""
        return await self._log.count(filters, after_offset, until_offset, limit)

    async def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        """See ``Database.sessions``."""
        start = after.encode() + b"\0" if after else b""
        while True:
            names, records = await session_page(self._driver, start)
            for record in records:
                yield record
            if len(names) < PAGE:
                return
            start = names[-1] + b"\0"

    async def open_session(self, client_id: str) -> StoredSession | None:
        """See ``Database.open_session``."""
        return await read_session(self._driver, client_id)

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """See ``Database.read_inbox``."""
        return await read_entries(
            self._driver, INBOX, client_id, after=after_offset, end=until_offset + 1, limit=limit
        )

    async def session_count(self) -> int:
        """Number of stored sessions."""
        return await self._count(CLIENTS)

    async def retained_count(self) -> int:
        """Number of retained topics."""
        return await self._count(RETAINED)

    async def groups(self) -> list[GroupRecord]:
        """All shared groups."""
        found = await self._driver.scan(GROUPS, rows.NOBODY, start=b"", end=b"", limit=ALL)
        return [decode_group(value) for _, value in found]

    async def _count(self, table: str) -> int:
        count = 0
        async for page in pages(self._driver, table, rows.NOBODY, names_only=True):
            count += len(page)
        return count

    def check(self) -> AsyncIterator[Finding]:
        """Look at every row; yields what is wrong (``check.py``)."""
        return Checker(self._driver).run()

    async def close(self) -> None:
        """Give the connections back."""
        await self._driver.close()
