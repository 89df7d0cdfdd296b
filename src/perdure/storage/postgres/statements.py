"""The statements of device queues, and what their rows mean: pure, no connection in sight.

Whoever has a transaction of its own may run them there (the broker's whole state in PostgreSQL
does). Every statement is for any number of clients, as arrays; the functions that it calls stand
in ``migrations``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from perdure.errors import Fenced, PerdureError
from perdure.storage.device_queue import Appended, EntryState, NewEntry, Trimmed
from perdure.storage.postgres.pool import Statement
from perdure.storage.postgres.rows import Row, key_of, row_of

APPEND_ROWS_MAX: Final = 4096
"""Entries of one statement."""

APPEND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload bytes of one statement, unless a single payload is larger."""

_APPEND: Final = (
    "SELECT * FROM perdure_queue_append($1::bigint, $2::integer, $3::varchar[], $4::text[], "
    "$5::integer[], $6::varchar[], $7::bigint[], $8::integer[], $9::bigint[], $10::varchar[], "
    "$11::bigint[], $12::varchar[], $13::integer[], $14::bytea[], $15::varchar[], $16::boolean[], "
    "$17::integer[], $18::integer[], $19::varchar[], $20::varchar[], $21::bytea[], "
    "$22::bigint[], $23::bytea[])"
)
_ACKNOWLEDGE: Final = (
    "SELECT counts FROM perdure_queue_acknowledge("
    "$1::varchar[], $2::bigint[], $3::integer[], $4::integer[])"
)
_RELEASE: Final = (
    "SELECT counts FROM perdure_queue_release("
    "$1::varchar[], $2::bigint[], $3::bigint[], $4::integer[], $5::integer[])"
)
_TRIM: Final = "SELECT counts FROM perdure_queue_trim($1::varchar[], $2::bigint[], $3::bigint[])"
_TAKE: Final = (
    "SELECT owner_epochs FROM perdure_queue_take($1::varchar[], $2::text[], $3::bigint[])"
)
_DISCARD: Final = "SELECT counts FROM perdure_queue_discard($1::varchar[], $2::bigint[])"
_EXPIRE: Final = "SELECT perdure_queue_expire($1::bigint, $2::bigint, $3::varchar[], $4::bigint[])"

# Columns of a row that go as an array each, in the order of the function's arguments.
_ROW_COLUMNS: Final = (
    ("topic", False),
    ("time", False),
    ("packet_type", False),
    ("qos", False),
    ("payload", False),
    ("user_properties", True),
    ("retain", False),
    ("msg_expiry_interval", True),
    ("payload_format_indicator", True),
    ("content_type", True),
    ("response_topic", True),
    ("correlation_data", True),
    ("forget_at_us", True),
    ("record", True),
)


@final
class AppendPart:
    """A part of an append that is one statement.

    In it a client's packet identifiers are either all given, each once, or all assigned, and it
    has no more entries than its queue may hold: so no entry goes for another one of the same
    statement.
    """

    __slots__ = ("bytes", "counts", "entries", "given", "indexes", "rows")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.entries: list[NewEntry] = []
        self.rows: list[Row] = []
        self.bytes = 0
        # By client: how many entries, and the identifiers that are given.
        self.counts: dict[str, int] = {}
        self.given: dict[str, set[int]] = {}

    def takes(self, entry: NewEntry, limit: int) -> bool:
        """Whether the entry may stand in this part."""
        if len(self.entries) >= APPEND_ROWS_MAX or self.bytes >= APPEND_BYTES_MAX:
            return False
        count = self.counts.get(entry.client_id)
        if count is None:
            return True
        if count >= limit:
            return False
        given = self.given.get(entry.client_id)
        if entry.packet_id:
            return given is not None and entry.packet_id not in given
        return given is None

    def add(self, index: int, entry: NewEntry, row: Row) -> None:
        """Take an entry."""
        self.indexes.append(index)
        self.entries.append(entry)
        self.rows.append(row)
        self.bytes += len(row.payload)
        self.counts[entry.client_id] = self.counts.get(entry.client_id, 0) + 1
        if entry.packet_id:
            self.given.setdefault(entry.client_id, set()).add(entry.packet_id)

    def statement(self, *, now_us: int, limit: int) -> Statement:
        """Its statement."""
        keys = {client_id: key_of(client_id) for client_id in self.counts}
        names = {key: client_id for client_id, key in keys.items() if key != client_id}
        clients = sorted(keys.values())
        owner_of = {key: place for place, key in enumerate(clients, 1)}
        entry_keys = [keys[entry.client_id] for entry in self.entries]
        return Statement(
            _APPEND,
            (
                now_us // 1000,
                limit,
                clients,
                [names.get(key) for key in clients],
                [owner_of[key] for key in entry_keys],
                entry_keys,
                [entry.serial for entry in self.entries],
                [entry.packet_id for entry in self.entries],
                [entry.position for entry in self.entries],
                *(_column(self.rows, name, optional) for name, optional in _ROW_COLUMNS),
            ),
        )


@final
class AppendPlan:
    """An append as statements of one transaction, and its results from their rows.

    Args:
        entries: checked (``device_queue.check_append``).
        now_us: wall time.
        limit: most PUBLISH entries of a queue.
    """

    def __init__(self, entries: Sequence[NewEntry], *, now_us: int, limit: int) -> None:
        self._count = len(entries)
        self._parts: list[AppendPart] = []
        part: AppendPart | None = None
        positions: dict[str, int] = {}
        for index, entry in enumerate(entries):
            if entry.position:
                # The store knows what it has taken before; what this call has, we know.
                if entry.position <= positions.get(entry.client_id, 0):
                    continue
                positions[entry.client_id] = entry.position
            if part is None or not part.takes(entry, limit):
                part = AppendPart()
                self._parts.append(part)
            part.add(index, entry, row_of(entry, now_us=now_us))
        self.statements = [part.statement(now_us=now_us, limit=limit) for part in self._parts]

    def results(self, rows: Sequence[Sequence[Any]]) -> list[Appended]:
        """One result for each entry, in order.

        Args:
            rows: those of each statement.
        """
        results = [Appended(0, 0, repeated=True)] * self._count
        for part, (row,) in zip(self._parts, rows, strict=True):
            trimmed: dict[int, list[Trimmed]] = {}
            gone = zip(
                row["trimmed_by"],
                row["trimmed_serials"],
                row["trimmed_packet_ids"],
                row["trimmed_types"],
                strict=True,
            )
            for place, serial, packet_id, packet_type in gone:
                trimmed.setdefault(place, []).append(
                    Trimmed(serial, packet_id or 0, EntryState[packet_type])
                )
            numbers = zip(part.indexes, row["serials"], row["packet_ids"], strict=True)
            for place, (index, serial, packet_id) in enumerate(numbers, 1):
                if serial is None:
                    continue
                went = sorted(trimmed.get(place, ()), key=lambda one: one.serial)
                results[index] = Appended(serial, packet_id, trimmed=tuple(went))
        return results


def acknowledge(requests: Sequence[tuple[str, int, Sequence[int]]]) -> Statement:
    """Delete entries by packet identifier; see ``counts_of``.

    Args:
        requests: client id, epoch and packet identifiers; each client once.
    """
    clients, epochs, owners, packet_ids = _flat(requests)
    return Statement(_ACKNOWLEDGE, (clients, epochs, owners, packet_ids))


def release(requests: Sequence[tuple[str, int, Sequence[int], int]]) -> Statement:
    """Turn entries into PUBREL; see ``counts_of``.

    Args:
        requests: client id, epoch, packet identifiers and ``forget_at_us``; each client once.
    """
    clients, epochs, owners, packet_ids = _flat([request[:3] for request in requests])
    return Statement(
        _RELEASE, (clients, epochs, [request[3] for request in requests], owners, packet_ids)
    )


def trim_through(requests: Sequence[tuple[str, int, int]]) -> Statement:
    """Delete entries up to a serial; see ``counts_of``.

    Args:
        requests: client id, epoch and serial; each client once.
    """
    keys = [key_of(client_id) for client_id, _, _ in requests]
    return Statement(
        _TRIM, (keys, [epoch for _, epoch, _ in requests], [serial for _, _, serial in requests])
    )


def discard(requests: Sequence[tuple[str, int]]) -> Statement:
    """Forget clients; see ``counts_of``: 1 = forgotten, 0 = unknown.

    Args:
        requests: client id and epoch; each client once.
    """
    keys = [key_of(client_id) for client_id, _ in requests]
    return Statement(_DISCARD, (keys, [epoch for _, epoch in requests]))


def take(requests: Sequence[tuple[str, int]]) -> Statement:
    """Become the owner; see ``owners_of``.

    Args:
        requests: client id and epoch; each client once.
    """
    keys = [key_of(client_id) for client_id, _ in requests]
    names = [
        client_id if key != client_id else None
        for key, (client_id, _) in zip(keys, requests, strict=True)
    ]
    return Statement(_TAKE, (keys, names, [epoch for _, epoch in requests]))


def expire(entries: Sequence[tuple[str, int]], *, now_us: int, kept_us: int = 0) -> Statement:
    """Delete entries that are past their time, if they still are; its only value counts them.

    Args:
        entries: client key and serial.
        kept_us: how long a message without an expiry of its own is kept; 0 = for ever.
    """
    clients = [client for client, _ in entries]
    return Statement(_EXPIRE, (now_us, kept_us // 1000, clients, [serial for _, serial in entries]))


def counts_of(
    client_ids: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[int | PerdureError]:
    """The result of each request."""
    return [
        Fenced(f"the queue of {client_id!r} belongs to another epoch") if count < 0 else count
        for client_id, count in zip(client_ids, rows[0]["counts"], strict=True)
    ]


def owners_of(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The epoch of each client's owner."""
    return list(rows[0]["owner_epochs"])


def _flat(
    requests: Sequence[tuple[str, int, Sequence[int]]],
) -> tuple[list[str], list[int], list[int], list[int]]:
    owners: list[int] = []
    packet_ids: list[int] = []
    for who, (_, _, theirs) in enumerate(requests, 1):
        owners += [who] * len(theirs)
        packet_ids += theirs
    keys = [key_of(client_id) for client_id, _, _ in requests]
    return keys, [epoch for _, epoch, _ in requests], owners, packet_ids


def _column(rows: Sequence[Row], name: str, optional: bool) -> list[object] | None:
    """A column as an array; None = NULL in all of them, which costs nothing to send."""
    values = [getattr(row, name) for row in rows]
    if optional and all(value is None for value in values):
        return None
    return values
