"""What stands in a database: recognised, and brought up to date by ``migrations``.

A migration is a folder, named by its version, whose files run in the order of their names.
Migrations go forward only. All that are missing run in one transaction under a lock, so that any
number of brokers may start at once; what was applied is on record with a checksum. TBMQ's tables
are recognised in the form of each 1.x release, and anything else of the same name is refused
before it is touched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Final, final

import asyncpg
import msgspec

from perdure.errors import ConfigError, FormatTooNew, StorageCorrupt
from perdure.storage.postgres.pool import Pool, Statement
from perdure.storage.postgres.queries import Shape

_LOCK: Final = 0x50455244_55524501
"""Key of the advisory lock under which migrations run."""

_FOLDER: Final = re.compile(r"(\d{4})_([a-z_]+)")

_SESSIONS: Final = {
    "client_id": "varchar",
    "last_updated_time": "int8",
    "last_serial_number": "int8",
    "last_packet_id": "int4",
}
_MESSAGES: Final = {
    "client_id": "varchar",
    "serial_number": "int8",
    "topic": "varchar",
    "time": "int8",
    "packet_id": "int4",
    "packet_type": "varchar",
    "qos": "int4",
    "payload": "bytea",
}
# TBMQ 1.0 and 1.2 lack some of these.
_LATER: Final = {
    "user_properties": "varchar",
    "retain": "bool",
    "msg_expiry_interval": "int4",
    "payload_format_indicator": "int4",
    "content_type": "varchar",
    "response_topic": "varchar",
    "correlation_data": "bytea",
}
# Types that hold all that the expected one does.
_AS_GOOD: Final = {"varchar": ("text",), "int4": ("int8",)}
_TABLES: Final = ("device_session_ctx", "device_publish_msg", "perdure_queue")

_COLUMNS: Final = """
SELECT c.table_name, c.column_name, c.udt_name,
    c.is_nullable = 'YES' OR c.column_default IS NOT NULL AS is_optional
FROM information_schema.columns AS c
WHERE c.table_schema = current_schema() AND c.table_name = ANY ($1::varchar[])
"""
_APPLIED: Final = "SELECT version, name, checksum FROM perdure_migration ORDER BY version"
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS perdure_migration (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_RECORD: Final = "INSERT INTO perdure_migration (version, name, checksum) VALUES ($1, $2, $3)"


@final
class Migration(msgspec.Struct, frozen=True):
    """One folder.

    Attributes:
        version: 1, 2, 3 without a gap.
        name: what it does.
        sql: the statements.
    """

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Of its text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All that this release knows, in order."""
    found = []
    for folder in resources.files(__package__).joinpath("migrations").iterdir():
        match = _FOLDER.fullmatch(folder.name)
        if match:
            files = sorted(folder.iterdir(), key=lambda file: file.name)
            sql = "\n".join(file.read_text(encoding="utf-8") for file in files)
            found.append(Migration(int(match[1]), match[2], sql))
    found.sort(key=lambda migration: migration.version)
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    return found


def missing(known: Sequence[Migration], applied: Iterable[Mapping[str, Any]]) -> list[Migration]:
    """Those that are yet to be applied.

    Raises:
        FormatTooNew: a later release has been here.
        StorageCorrupt: a migration is not the one that was applied.
    """
    done = {row["version"]: row["checksum"] for row in applied}
    if done and max(done) > len(known):
        raise FormatTooNew(
            f"the database is at migration {max(done)}, this release knows {len(known)}",
            hint="use the release that wrote it, or a later one",
        )
    for migration in known:
        if done.get(migration.version, migration.checksum) != migration.checksum:
            raise StorageCorrupt(
                f"migration {migration.version} ({migration.name}) was applied with another text"
            )
    return [migration for migration in known if migration.version not in done]


def shape_of(columns: Iterable[Mapping[str, Any]]) -> Shape:
    """What the tables that were found are.

    Raises:
        ConfigError: a table with a name of TBMQ's is not TBMQ's.
    """
    tables: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in columns:
        tables.setdefault(row["table_name"], {})[row["column_name"]] = row
    sessions, messages = (tables.get(name, {}) for name in _TABLES[:2])
    if not sessions and not messages:
        return Shape(has_queues=False, has_state=False, missing=frozenset(_LATER))
    _check("device_session_ctx", sessions, _SESSIONS, {})
    _check("device_publish_msg", messages, _MESSAGES, _LATER)
    return Shape(
        has_queues=True,
        has_state="perdure_queue" in tables,
        missing=frozenset(_LATER) - messages.keys(),
    )


async def look(pool: Pool) -> Shape:
    """What the database has; nothing is changed."""
    return shape_of(await pool.run(Statement(_COLUMNS, (list(_TABLES),))))


async def migrate(pool: Pool) -> list[Migration]:
    """Bring the database up to date; returns what was applied.

    Raises:
        ConfigError: the tables are somebody else's, or we may not make any.
        FormatTooNew, StorageCorrupt: see ``missing``.
    """
    known = migrations()
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        shape_of(await connection.fetch(_COLUMNS, list(_TABLES)))
        await _quietly(connection, _TABLE)
        todo = missing(known, await connection.fetch(_APPLIED))
        for migration in todo:
            await _quietly(connection, migration.sql)
            await connection.execute(_RECORD, migration.version, migration.name, migration.checksum)
    return todo


async def _quietly(connection: asyncpg.Connection[Any], sql: str) -> None:
    # "already exists, skipping" is what we asked for.
    await connection.execute(f"SET LOCAL client_min_messages = warning; {sql}")


def _check(
    table: str,
    found: Mapping[str, Mapping[str, Any]],
    needed: Mapping[str, str],
    optional: Mapping[str, str],
) -> None:
    wrong = [name for name in needed if name not in found]
    if wrong:
        raise _refused(table, f"it has no column {', '.join(wrong)}")
    known = {**needed, **optional}
    for name, column in found.items():
        if name not in known:
            if not column["is_optional"]:
                raise _refused(table, f"its column {name} is not TBMQ's and must have a value")
        elif column["udt_name"] not in (known[name], *_AS_GOOD.get(known[name], ())):
            raise _refused(table, f"its column {name} is {column['udt_name']}, not {known[name]}")


def _refused(table: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the table {table} is not that of TBMQ 1.x: {reason}",
        hint="use another database, or another schema with ?search_path=NAME in the URL",
    )
