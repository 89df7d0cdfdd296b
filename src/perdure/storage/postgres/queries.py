"""Reading queues: pages, numbers, the list of clients, what has expired.

Reading needs nothing but TBMQ's two tables, and not even all of their columns: so data that
TBMQ 1.x wrote are read as they are, without changing anything. Pure, like ``statements``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import msgspec

from perdure.storage.device_queue import EntryState, QueuedEntry, QueuePage, QueueStats
from perdure.storage.postgres.pool import Statement
from perdure.storage.postgres.rows import entry_of, key_of

COLUMNS: Final = (
    "client_id",
    "serial_number",
    "topic",
    "time",
    "packet_id",
    "packet_type",
    "qos",
    "payload",
    "user_properties",
    "retain",
    "msg_expiry_interval",
    "payload_format_indicator",
    "content_type",
    "response_topic",
    "correlation_data",
)
"""Those of ``device_publish_msg``."""

_TYPES: Final = {
    "user_properties": "varchar",
    "retain": "boolean",
    "msg_expiry_interval": "integer",
    "payload_format_indicator": "integer",
    "content_type": "varchar",
    "response_topic": "varchar",
    "correlation_data": "bytea",
}

_WALK_ROWS: Final = 2000


@final
class Shape(msgspec.Struct, frozen=True):
    """What the database has of all that we may read.

    Attributes:
        has_queues: TBMQ's two tables are there.
        has_state: our own tables are there.
        missing: columns that the messages of an early TBMQ lack.
    """

    has_queues: bool = True
    has_state: bool = True
    missing: frozenset[str] = frozenset()


@final
class Queries:
    """Statements that read a database of a certain shape."""

    def __init__(self, shape: Shape) -> None:
        self._has_state = shape.has_state
        columns = ", ".join(
            f"NULL::{_TYPES[name]} AS {name}" if name in shape.missing else f"m.{name}"
            for name in COLUMNS
            if name != "payload"
        )
        self._read = _READ.format(
            columns=columns,
            beside=_BESIDE if shape.has_state else "",
            more="b.forget_at_us, b.record"
            if shape.has_state
            else "NULL::bigint AS forget_at_us, NULL::bytea AS record",
        )
        state = _STATE if shape.has_state else _NO_STATE
        self._stats = _STATS.format(state=state)
        self._clients = _CLIENTS.format(more=_STATE_CLIENTS if shape.has_state else "")

    def read(self, requests: Sequence[tuple[str, int, int, int]]) -> Statement:
        """One page each; see ``pages_of``.

        Args:
            requests: client id, ``after_serial``, ``limit`` and ``bytes_max``.
        """
        keys = [key_of(request[0]) for request in requests]
        columns = [[request[place] for request in requests] for place in (1, 2, 3)]
        return Statement(self._read, (keys, *columns))

    def stats(self, client_keys: Sequence[str]) -> Statement:
        """Queues in numbers; see ``stats_of``. Unknown ones have no row."""
        return Statement(self._stats, (list(client_keys),))

    def client_keys(self, *, after: str) -> Statement:
        """All clients above a key, in the order of their keys' bytes; for a cursor."""
        # The empty client id is one too, and the first.
        return Statement(self._clients, (after, not after))


@final
class Page:
    """One page that was read, before anybody knows what of it is past its time."""

    __slots__ = ("entries", "next_after")

    def __init__(self) -> None:
        self.entries: list[QueuedEntry] = []
        self.next_after: int | None = None

    def split(self, now_us: int) -> tuple[QueuePage, list[int]]:
        """What is owed, and the serials of what is past its time."""
        owed = [entry for entry in self.entries if not is_past(entry, now_us)]
        past = [entry.serial for entry in self.entries if is_past(entry, now_us)]
        return QueuePage(owed, self.next_after), past


def pages_of(rows: Sequence[Mapping[str, Any]], count: int) -> list[Page]:
    """The page of each request."""
    pages = [Page() for _ in range(count)]
    for row in rows:
        page = pages[row["who"] - 1]
        if row["payload"] is None:
            # The first one that did not fit any more.
            page.next_after = page.entries[-1].serial
        else:
            page.entries.append(entry_of(row))
    return pages


def is_past(entry: QueuedEntry, now_us: int) -> bool:
    """Whether an entry is not owed any more; what is past its PUBREC has no expiry."""
    if 0 < entry.forget_at_us <= now_us:
        return True
    return entry.state is EntryState.PUBLISH and 0 < entry.message.expires_at_us <= now_us


def stats_of(row: Mapping[str, Any]) -> QueueStats:
    """A queue in numbers."""
    return QueueStats(
        client_id=row["name"],
        publish_count=row["publish_count"],
        pubrel_count=row["pubrel_count"],
        payload_bytes=row["payload_bytes"],
        last_packet_id=row["last_packet_id"],
        last_serial=row["last_serial"],
        last_position=row["last_position"],
        epoch=row["epoch"],
    )


def to_forget(*, now_us: int, limit: int) -> Statement:
    """Entries that are past the lifetime that somebody gave them: client key and serial."""
    return Statement(_TO_FORGET, (now_us, limit))


def drop_orphans(entries: Sequence[tuple[str, int]]) -> Statement:
    """Delete what we hold beside messages that are gone."""
    clients = [client for client, _ in entries]
    return Statement(_DROP_ORPHANS, (clients, [serial for _, serial in entries]))


def walk(after: tuple[str, int], *, now_us: int, kept_us: int) -> Statement:
    """The next stretch of all messages: where it ends, and which of them are past their time."""
    return Statement(_WALK, (*after, now_us, kept_us // 1000, _WALK_ROWS))


@final
class Stretch(msgspec.Struct, frozen=True):
    """What ``walk`` found.

    Attributes:
        last: key and serial of its last message; None = there is none any more.
        past: keys and serials of those that are past their time.
    """

    last: tuple[str, int] | None
    past: tuple[tuple[str, int], ...]


def stretch_of(rows: Sequence[Mapping[str, Any]]) -> Stretch:
    """The result of ``walk``."""
    (row,) = rows
    is_last = row["count"] < _WALK_ROWS
    past = zip(row["clients"] or (), row["serials"] or (), strict=True)
    return Stretch(None if is_last else (row["last_client"], row["last_serial"]), tuple(past))


# The payload of the first row that does not fit is left out: it says that there is more.
_READ: Final = """
SELECT r.who, p.*
FROM unnest($1::varchar[], $2::bigint[], $3::integer[], $4::bigint[]) WITH ORDINALITY
    AS r (client_id, after_serial, row_limit, bytes_max, who)
CROSS JOIN LATERAL (
    SELECT {columns}, {more},
        CASE WHEN m.place = 1 OR m.place <= r.row_limit AND m.size <= r.bytes_max
            THEN m.payload END AS payload
    FROM (
        SELECT n.*, row_number() OVER o AS place, sum(octet_length(n.payload)) OVER o AS size
        FROM device_publish_msg AS n
        WHERE n.client_id = r.client_id AND n.serial_number > r.after_serial
        WINDOW o AS (ORDER BY n.serial_number)
        ORDER BY n.serial_number
        LIMIT r.row_limit + 1
    ) AS m {beside}
    WHERE m.place <= 2 OR m.size - octet_length(m.payload) <= r.bytes_max
) AS p
ORDER BY r.who, p.serial_number
"""
_BESIDE: Final = """
    LEFT JOIN perdure_queue_entry AS b
        ON b.client_id = m.client_id AND b.serial_number = m.serial_number AND b.time = m.time
"""

_STATS: Final = """
SELECT c.client_id, coalesce(q.name, c.client_id) AS name,
    z.publish_count, z.pubrel_count, z.payload_bytes,
    coalesce(s.last_packet_id, z.packet_id, 0) AS last_packet_id,
    greatest(s.last_serial_number, z.serial_number, 0) AS last_serial,
    coalesce(q.last_position, 0) AS last_position, coalesce(q.epoch, 0) AS epoch,
    s.client_id IS NOT NULL OR q.client_id IS NOT NULL AS is_session
FROM unnest($1::varchar[]) WITH ORDINALITY AS c (client_id, who)
LEFT JOIN device_session_ctx AS s ON s.client_id = c.client_id
LEFT JOIN {state} AS q ON q.client_id = c.client_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.packet_type IS DISTINCT FROM 'PUBREL') AS publish_count,
        count(*) FILTER (WHERE m.packet_type = 'PUBREL') AS pubrel_count,
        coalesce(sum(octet_length(m.payload)), 0)::bigint AS payload_bytes,
        max(m.serial_number) AS serial_number,
        CASE WHEN s.last_packet_id IS NULL THEN
            (array_agg(m.packet_id ORDER BY m.serial_number DESC)
                FILTER (WHERE m.packet_id IS NOT NULL))[1]
        END AS packet_id
    FROM device_publish_msg AS m WHERE m.client_id = c.client_id
) AS z
WHERE s.client_id IS NOT NULL OR q.client_id IS NOT NULL OR z.serial_number IS NOT NULL
ORDER BY c.who
"""
_STATE: Final = "perdure_queue"
_NO_STATE: Final = (
    "(SELECT NULL::varchar AS client_id, NULL::text AS name, NULL::bigint AS last_position, "
    "NULL::bigint AS epoch)"
)

# In the order of bytes whatever the collation of the database, which its indexes follow.
_CLIENTS: Final = """
SELECT c.client_id FROM (
    SELECT s.client_id FROM device_session_ctx AS s
    UNION SELECT m.client_id FROM device_publish_msg AS m
    {more}
) AS c
WHERE c.client_id COLLATE "C" > $1::varchar OR $2::boolean
ORDER BY c.client_id COLLATE "C"
"""
_STATE_CLIENTS: Final = "UNION SELECT q.client_id FROM perdure_queue AS q"

_TO_FORGET: Final = """
SELECT e.client_id, e.serial_number FROM perdure_queue_entry AS e
WHERE e.forget_at_us <= $1::bigint ORDER BY e.forget_at_us LIMIT $2::integer
"""

_DROP_ORPHANS: Final = """
DELETE FROM perdure_queue_entry AS e
USING unnest($1::varchar[], $2::bigint[]) AS g (client_id, serial_number)
WHERE e.client_id = g.client_id AND e.serial_number = g.serial_number AND NOT EXISTS (
    SELECT FROM device_publish_msg AS m
    WHERE m.client_id = e.client_id AND m.serial_number = e.serial_number AND m.time = e.time)
"""

_WALK: Final = """
SELECT count(*) AS count,
    (array_agg(w.client_id))[count(*)] AS last_client,
    (array_agg(w.serial_number))[count(*)] AS last_serial,
    array_agg(w.client_id) FILTER (WHERE w.is_past) AS clients,
    array_agg(w.serial_number) FILTER (WHERE w.is_past) AS serials
FROM (
    SELECT m.client_id, m.serial_number, perdure_queue_is_past(
        $3::bigint, $4::bigint, m.packet_type, m.time, m.msg_expiry_interval) AS is_past
    FROM device_publish_msg AS m
    WHERE (m.client_id, m.serial_number) > ($1::varchar, $2::bigint)
    ORDER BY m.client_id, m.serial_number LIMIT $5::integer
) AS w
"""
