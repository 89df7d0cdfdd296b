"""What members have returned to a group: given again before anything from the log.

The store has it in the group's private stream. It is read once, and kept in memory from then on, in
the order of the log, whenever it came back.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from perdure.model import InboxEntry

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.shared.member import LocalMember

PAGE: Final = 256
"""Entries read at once from the store."""


@final
class ReturnedEntries:
    """The returned entries of one group.

    Args:
        core: what every part stands on.
        group_key: of the group.

    Attributes:
        entries: those that are known; all there are if ``is_loaded``.
        is_loaded: what the store has was read.
    """

    __slots__ = ("_core", "_group_key", "_is_forgotten", "entries", "is_loaded")

    def __init__(self, core: BrokerCore, group_key: str) -> None:
        self._core: BrokerCore = core
        self._group_key: str = group_key
        self.entries: deque[InboxEntry] = deque()
        self.is_loaded: bool = False
        self._is_forgotten: bool = False
        """They were forgotten since they began to be read."""

    def forget(self) -> None:
        """What the store has may be something else by now."""
        self.entries.clear()
        self.is_loaded = False
        self._is_forgotten = True

    def add(self, entry: InboxEntry) -> None:
        """An entry has come back (and is in the group's private stream)."""
        entries = self.entries
        if not entries or _log_offset(entries[-1]) <= _log_offset(entry):
            entries.append(entry)
        else:
            insort(entries, entry, key=_log_offset)

    async def load(self, members: Callable[[], list[LocalMember]]) -> None:
        """Read what the store has, but for what members hold; not ``is_loaded`` if it is to be done
        once more.

        Args:
            members: tells who of the group is connected here.

        Raises:
            StorageError: it cannot be read.
        """
        core, key = self._core, self._group_key
        self._is_forgotten = False
        outstanding = _outstanding(members())
        # What this node has put back, given again or deleted may be on its way.
        await core.pipeline.committed()
        entries = await core.database.read_group_entries(key, limit=PAGE)
        outstanding |= _outstanding(members())
        found: list[InboxEntry] = []
        while entries:
            found.extend(entry for entry in entries if entry.offset not in outstanding)
            if len(entries) < PAGE:
                break
            entries = await core.database.read_group_entries(
                key, limit=PAGE, after_offset=entries[-1].offset
            )
        if self._is_forgotten:
            return  # what has come back meanwhile went by
        self._part_rows(found)
        # What has come back meanwhile may have been read, or be on its way to the store.
        read = {entry.offset for entry in found}
        found.extend(entry for entry in self.entries if entry.offset not in read)
        self.entries = deque(sorted(found, key=_log_offset))
        self.is_loaded = True

    def _part_rows(self, found: list[InboxEntry]) -> None:
        """What was read from a row of several gets rows of its own: it will be given one by one.

        The row of several has the key of its last entry, so it is replaced.
        """
        if self._core.peers is not None:
            return  # nodes keep each entry
        batch = self._core.committer.batch
        for at, entry in enumerate(found):
            before = found[at - 1].offset if at else 0
            after = found[at + 1].offset if at + 1 < len(found) else 0
            if entry.offset in {before + 1, after - 1} and entry.qos == 1:
                batch.put_group_entry(self._group_key, entry)


def _outstanding(members: list[LocalMember]) -> set[int]:
    """Offsets of what members have, and of what is settled and still has a row."""
    found: set[int] = set()
    for member in members:
        session = member.session
        for entries in (*session.given.values(), *session.group_runs):
            found.update([entry.offset for entry in entries])
    return found


def _log_offset(entry: InboxEntry) -> int:
    """Where an entry's message stands in the log; its own offset tells when it was given."""
    message = entry.message
    return entry.offset if message is None else message.offset
