"""The rows and queue entries of a broker's transaction as statements.

Most transactions are one call of ``perdure_commit`` or, if queues are concerned, of
``perdure_commit_with_queues``; both are in ``state.sql``. Owner and key that are too long for an
index stand in ``perdure_state_long``, by a hash.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final, final

import msgspec

from perdure.storage.device_queue import QUEUE_LIMIT_MAX
from perdure.storage.postgres.pool import Statement
from perdure.storage.postgres.rows import key_of
from perdure.storage.postgres.statements import AppendPlan
from perdure.storage.remote.driver import TABLES, Transaction

KEY_BYTES_MAX: Final = 2000
"""Owner and key that together are longer stand in the table without an order."""

OWN: Final = b"own"
"""With an entry of a client's own message: the tables have no place for the publisher."""

KINDS: Final = {table: number for number, table in enumerate(TABLES, 1)}
"""Tables as they are called in the rows."""

_COMMIT: Final = f"SELECT perdure_commit({', '.join(f'${n}' for n in range(1, 15))})"
_COMMIT_WITH_QUEUES: Final = (
    f"SELECT perdure_commit_with_queues({', '.join(f'${n}' for n in range(1, 41))})"
)
_APPEND_ARGUMENTS: Final = 23


def statements(
    token: int, transaction: Transaction, changes: Changes
) -> tuple[Statement, list[Statement]]:
    """The first statement of a transaction, which says whether it is new, and the others."""
    arguments = (token, transaction.number, *changes.arguments)
    if not (transaction.discarded or transaction.queue_trims or transaction.appends):
        return Statement(_COMMIT, arguments), []
    entries = [
        msgspec.structs.replace(entry, extra=OWN)
        if entry.message.publisher == entry.client_id
        else entry
        for queued in transaction.appends.values()
        for entry in queued
    ]
    appends: list[Statement] = []
    if entries:
        plan = AppendPlan(entries, now_us=time.time_ns() // 1000, limit=QUEUE_LIMIT_MAX)
        appends = plan.statements
    first = appends[0].arguments if appends else (None,) * _APPEND_ARGUMENTS
    trims = transaction.queue_trims
    queues = (
        [key_of(client_id) for client_id in transaction.discarded] or None,
        [key_of(client_id) for client_id in trims] or None,
        list(trims.values()) or None,
    )
    return Statement(_COMMIT_WITH_QUEUES, (*arguments, *queues, *first)), appends[1:]


@final
class Changes:
    """The rows of a transaction as arrays, and those that have a table of their own.

    Attributes:
        arguments: of the function that commits, without those of queues.
        has_long: rows of long keys are put or deleted by name.
        may_touch_long: rows are deleted without being named, long ones perhaps among them.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.long_puts: list[tuple[bytes, int, bytes, bytes, bytes]] = []
        self.long_gone: list[bytes] = []
        puts: list[tuple[int, bytes, bytes, bytes]] = []
        gone: list[tuple[int, bytes, bytes]] = []
        for (table, owner), changed in transaction.puts.items():
            kind = KINDS[table]
            for key, value in changed.items():
                if is_long(owner, key):
                    place = long_id(kind, owner, key)
                    if value is None:
                        self.long_gone.append(place)
                    else:
                        self.long_puts.append((place, kind, owner, key, value))
                elif value is None:
                    gone.append((kind, owner, key))
                else:
                    puts.append((kind, owner, key, value))
        self.dropped = [(KINDS[table], owner) for table, owner in transaction.dropped]
        self.trimmed = [
            (KINDS[table], owner, through)
            for (table, owner), through in transaction.trimmed.items()
        ]
        self.has_long = bool(self.long_puts or self.long_gone)
        self.may_touch_long = bool(self.dropped or self.trimmed)
        self.arguments: list[Any] = [
            *_columns(self.dropped, 2),
            *_columns(self.trimmed, 3),
            *_columns(gone, 3),
            *_columns(puts, 4),
        ]

    def long_statements(self) -> list[Statement]:
        """What the table of long keys gets of these changes."""
        found = [
            Statement("DELETE FROM perdure_state_long WHERE kind = $1 AND owner = $2", place)
            for place in self.dropped
        ]
        found += [
            Statement(
                "DELETE FROM perdure_state_long WHERE kind = $1 AND owner = $2 AND key <= $3", place
            )
            for place in self.trimmed
        ]
        if self.long_gone:
            gone = "DELETE FROM perdure_state_long WHERE id = ANY ($1)"
            found.append(Statement(gone, (self.long_gone,)))
        found += [
            Statement(
                "INSERT INTO perdure_state_long (id, kind, owner, key, value) "
                "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET value = excluded.value",
                put,
            )
            for put in self.long_puts
        ]
        return found


def _columns(found: Sequence[tuple[Any, ...]], count: int) -> list[Any]:
    if not found:
        return [None] * count
    return [list(column) for column in zip(*found, strict=True)]


def is_long(owner: bytes, key: bytes) -> bool:
    """Whether a row stands in the table without an order."""
    return len(owner) + len(key) > KEY_BYTES_MAX


def long_id(kind: int, owner: bytes, key: bytes) -> bytes:
    """What such a row is found by."""
    return hashlib.sha256(b"%d %d %b%b" % (kind, len(owner), owner, key)).digest()
