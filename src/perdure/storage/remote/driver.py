"""What a server must be able to do to hold a broker's state, and what is sent to it.

A driver keeps *rows*: byte keys and values in tables, each row belonging to an *owner* (a client,
a group, a generation, or nobody). Besides it keeps one *queue* for each client, in the form in
which ``storage.device_queue`` describes them. It knows no sessions and decodes no row.

Everything is written by *transactions*. Their numbers ascend without gaps, and the number of the
last one is stored with what it wrote: so one whose outcome is unknown can be sent again, and is
skipped if it was there. A *claim* makes a driver the only writer; a transaction of a driver that
has lost its claim is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol, TypeAlias, final

import msgspec

from perdure.model import Message
from perdure.storage.contract import ReadResult
from perdure.storage.device_queue import NewEntry, QueuedEntry

Owner: TypeAlias = bytes


class Kind(Enum):
    """How the rows of a table are read, which is what a server may lay them out by."""

    VALUES = "values"
    """Rows have values; all rows of an owner are few and read together."""
    NAMES = "names"
    """Keys without values, read in pages in byte order."""
    ORDERED = "ordered"
    """Rows have values and are read in pages in byte order."""


IDENTITY_FILE: Final = "broker.id"
"""In the data directory: who this broker is to a server that two could write to."""

META: Final = "meta"
ROWS: Final = "rows"
CLIENTS: Final = "clients"
INBOX: Final = "inbox"
GROUPS: Final = "groups"
MEMBERS: Final = "members"
RETURNED: Final = "returned"
RETAINED: Final = "retained"
LOG: Final = "log"
ADDED: Final = "added"

TABLES: Final[dict[str, Kind]] = {
    META: Kind.VALUES,
    ROWS: Kind.VALUES,
    CLIENTS: Kind.NAMES,
    INBOX: Kind.ORDERED,
    GROUPS: Kind.VALUES,
    MEMBERS: Kind.NAMES,
    RETURNED: Kind.ORDERED,
    RETAINED: Kind.ORDERED,
    LOG: Kind.ORDERED,
    ADDED: Kind.ORDERED,
}
"""Every table; what their rows mean is drawn in ``rows.py``."""

QUEUE_MAX: Final = 65_000
"""Entries of a queue: below the number of packet identifiers, so that none is ever needed twice."""

Row: TypeAlias = tuple[bytes, bytes]
"""Key and value; the value is empty in a table of names."""


@final
class Transaction:
    """Changes that a server applies together, in this order: owners dropped, rows trimmed, rows
    put and deleted; queues discarded, trimmed, appended to.

    Adding keeps that order equivalent to the order of the calls: what is covered by a later
    deletion is taken out again, and so costs the server nothing.

    Attributes:
        number: set when it is closed; ascends by one.
        dropped: tables and owners all of whose rows go.
        trimmed: (table, owner) -> key up to which rows go, inclusive.
        puts: (table, owner) -> key -> value; None = the row goes.
        discarded: clients whose queue goes.
        queue_trims: client -> serial up to which its entries go, inclusive.
        appends: client -> entries, ascending.
        size: bytes that it holds, about.
        last_write: number of the last batch in it.
    """

    __slots__ = (
        "appends",
        "discarded",
        "dropped",
        "last_write",
        "number",
        "puts",
        "queue_trims",
        "size",
        "trimmed",
    )

    def __init__(self) -> None:
        self.number = 0
        self.dropped: dict[tuple[str, Owner], None] = {}
        self.trimmed: dict[tuple[str, Owner], bytes] = {}
        self.puts: dict[tuple[str, Owner], dict[bytes, bytes | None]] = {}
        self.discarded: dict[str, None] = {}
        self.queue_trims: dict[str, int] = {}
        self.appends: dict[str, list[NewEntry]] = {}
        self.size = 0
        self.last_write = 0

    def put(self, table: str, owner: Owner, key: bytes, value: bytes | None) -> None:
        """Create or replace a row, or delete it."""
        place = (table, owner)
        rows = self.puts.get(place)
        if rows is None:
            rows = self.puts[place] = {}
        rows[key] = value
        self.size += len(key) + (len(value) if value is not None else 0) + len(owner)

    def drop(self, table: str, owner: Owner) -> None:
        """Delete all rows of an owner."""
        place = (table, owner)
        self.puts.pop(place, None)
        self.trimmed.pop(place, None)
        self.dropped[place] = None
        self.size += len(owner)

    def trim(self, table: str, owner: Owner, through: bytes) -> None:
        """Delete the rows of an owner up to a key, inclusive."""
        place = (table, owner)
        rows = self.puts.get(place)
        if rows is not None:
            for key in [key for key in rows if key <= through]:
                del rows[key]
        before = self.trimmed.get(place)
        if before is None or before < through:
            self.trimmed[place] = through
        self.size += len(owner) + len(through)

    def append(self, entry: NewEntry, size: int) -> None:
        """Append to the queue of a client."""
        entries = self.appends.get(entry.client_id)
        if entries is None:
            self.appends[entry.client_id] = [entry]
        else:
            entries.append(entry)
        self.size += size

    def trim_queue(self, client_id: str, serial: int) -> None:
        """Delete the entries of a queue up to a serial, inclusive."""
        entries = self.appends.get(client_id)
        if entries is not None:
            kept = [entry for entry in entries if entry.serial > serial]
            if kept:
                self.appends[client_id] = kept
            else:
                del self.appends[client_id]
        if self.queue_trims.get(client_id, 0) < serial:
            self.queue_trims[client_id] = serial
        self.size += 16

    def discard_queue(self, client_id: str) -> None:
        """Forget a queue."""
        self.appends.pop(client_id, None)
        self.queue_trims.pop(client_id, None)
        self.discarded[client_id] = None
        self.size += 16


class Claim(msgspec.Struct, frozen=True):
    """What a driver found when it became the writer.

    Attributes:
        number: of the last transaction that is stored; 0 = none ever was.
    """

    number: int


class Reads(Protocol):
    """The half of a server that reads. All calls come from one event loop."""

    async def get(self, rows: Sequence[tuple[str, Owner, bytes]]) -> list[bytes | None]:
        """Values of single rows."""
        ...

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
        """Rows of an owner with ``start <= key < end`` in byte order; an empty end is none.

        Args:
            table: which.
            owner: whose.
            start: inclusive bound.
            end: exclusive bound; empty = no bound.
            limit: most rows.
            names_only: values are not wanted; they may be empty.
        """
        ...

    async def read_queue(
        self, client_id: str, *, after_serial: int, until_serial: int, limit: int, bytes_max: int
    ) -> ReadResult:
        """Messages of a queue in order of their serials, which are their offsets.

        The page ends like one of ``Database.read``, at the latest at ``until_serial``. An entry
        whose message has expired may be there or not.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Looks(Reads, Protocol):
    """A driver that can be connected for reading alone, beside the broker."""

    @property
    def place(self) -> str:
        """See ``Driver``."""
        ...

    async def look(self) -> bool:
        """Connect; False = no broker keeps its state there."""
        ...


class Driver(Reads, Protocol):
    """A server, whose state its only writer reads too; one ``commit`` at a time."""

    async def probe(self) -> None:
        """Whether ``claim`` would find the server, and may use it; beside a broker, too.

        Nothing is claimed or changed.

        Raises:
            ConfigError: the login or the server's settings are refused.
            StorageError: it does not answer, or cannot be used.
        """
        ...

    @property
    def place(self) -> str:
        """The server as a person knows it, without secrets."""
        ...

    @property
    def queue_max(self) -> int:
        """Most entries that a queue takes; what is beyond is kept in rows."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether the connection for transactions is there, as far as anybody knows."""
        ...

    async def claim(self) -> Claim:
        """Connect, and become or stay the only writer. Called again after a loss.

        When it returns, nothing that this driver sent before will still be applied.

        Raises:
            StorageLocked: another broker writes there.
            Fenced: another broker has written there since this driver's first claim.
            StorageUnavailable: there is no connection to be had now.
            StorageError: the server cannot be used as it is.
        """
        ...

    async def commit(self, transaction: Transaction) -> None:
        """Apply a transaction: it is as durable as the server is set when this returns.

        Raises:
            Fenced: the claim is lost; nothing was applied.
            StorageFull: the server refuses writes now; nothing was applied.
            StorageUnavailable: it may be applied or not: ``claim`` tells.
        """
        ...

    async def rows_of(self, table: str, owners: Sequence[Owner]) -> list[list[Row]]:
        """All rows of many owners, in a table whose owners have few."""
        ...

    async def queue_sizes(self, client_ids: Sequence[str]) -> list[int]:
        """Entries in each of these queues, at most."""
        ...

    async def close(self) -> None:
        """Give the claim back, so that another broker can start at once, and disconnect."""
        ...


def messages_of(
    entries: Sequence[QueuedEntry], next_after: int | None, *, until_serial: int
) -> ReadResult:
    """A page of a queue as ``Driver.read_queue`` returns it.

    Args:
        entries: the page, in order; their messages are given their serials as offsets.
        next_after: where the next page begins; None = there is none.
        until_serial: the page ends there.
    """
    messages: list[Message] = []
    for entry in entries:
        if entry.serial > until_serial:
            return ReadResult(messages, until_serial)
        message = entry.message
        message.offset = entry.serial
        messages.append(message)
    through = until_serial if next_after is None else min(next_after, until_serial)
    return ReadResult(messages, through)
