"""A broker's whole state in a server, looked at from outside: what it holds, and its log.

Claims nothing and writes nothing, so it works beside the broker. What is read first and what is
read last may differ by what the broker has written meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, final

from perdure.model import GroupRecord
from perdure.storage.codec import decode_group
from perdure.storage.contract import Counted, Finding, GenerationInfo, ReadResult
from perdure.storage.remote import rows
from perdure.storage.remote.check import Checker
from perdure.storage.remote.driver import CLIENTS, GROUPS, META, RETAINED, Reads
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.reader import StateReader, pages
from perdure.storage.tail import Tail

ALL: Final = 1 << 31
"""Rows of an owner that has few."""


@final
class StateView(StateReader):
    """A state in a server with its log, groups and retained messages; closes its driver."""

    def __init__(self, driver: Reads, last_offset: int) -> None:
        super().__init__(driver, last_offset)
        self._log = RemoteLog(driver, Tail(messages_max=0, bytes_max=0, floor=0))

    async def _load(self) -> None:
        meta = await self._driver.scan(META, rows.NOBODY, start=b"", end=b"", limit=ALL)
        await self._log.load(meta, last_offset=self.last_offset)

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
    ) -> Counted:
        """See ``Database.count``."""
        return await self._log.count(filters, after_offset, until_offset, limit)

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
