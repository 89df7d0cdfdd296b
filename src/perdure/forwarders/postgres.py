"""A PostgreSQL table as the target. The offset is the primary key: each message is there once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

import asyncpg
import msgspec

from perdure.config.schema import ForwarderConfig
from perdure.config.schema.forwarders import PostgresForwarderConfig
from perdure.errors import ConfigError, TargetUnavailable
from perdure.forwarders.mapping import TopicMap, payload_of, user_properties
from perdure.forwarders.output import Context, Output, Refusal
from perdure.model import Cursor, Message

_SCHEMES: Final = ("postgresql://", "postgres://")
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS {table} (
  "offset" bigint PRIMARY KEY, published_at timestamptz NOT NULL, topic text NOT NULL,
  payload bytea NOT NULL, qos smallint NOT NULL, retain boolean NOT NULL,
  publisher text NOT NULL, user_properties jsonb)
"""
_INSERT: Final = """
INSERT INTO {table}
  ("offset", published_at, topic, payload, qos, retain, publisher, user_properties)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::bytea[], $5::smallint[],
  $6::boolean[], $7::text[], $8::jsonb[])
ON CONFLICT DO NOTHING
"""
# Of the data, and of constraints that somebody has added: about a row, whatever else is well.
_ABOUT_ROWS: Final = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)


@final
class PostgresOutput(Output):
    """Inserts rows.

    Args:
        settings, context: of the forwarder.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(self, settings: PostgresForwarderConfig, context: Context) -> None:
        setting = context.setting
        if not settings.url.startswith(_SCHEMES):
            raise ConfigError(
                "needs the URL of a PostgreSQL",
                path=f"{setting}.url",
                hint="such as postgresql://user:password@host:5432/database",
            )
        if _TABLE.fullmatch(settings.table) is None:
            raise ConfigError(f"{settings.table!r} is no name of a table", path=f"{setting}.table")
        self._settings = settings
        self._context = context
        self._topic = TopicMap(settings.strip, settings.topic, setting=f"{setting}.topic")
        self._table = ".".join(f'"{part}"' for part in settings.table.split("."))
        self._connection: Any = None

    async def open(self, cursor: Cursor) -> int:
        """Connect, and make the table if it is not there."""
        try:
            self._connection = await asyncpg.connect(
                self._settings.url,
                timeout=self._settings.timeout_s,
                command_timeout=self._settings.timeout_s,
            )
            await self._connection.execute(_CREATE.format(table=self._table))
        except ValueError as error:
            raise ConfigError(f"{error}", path=f"{self._context.setting}.url") from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            raise TargetUnavailable(f"PostgreSQL: {error}") from None
        return 0

    async def write(self, messages: Sequence[Message]) -> list[Refusal] | None:
        """Insert a batch, in one statement."""
        try:
            await self._insert(messages)
        except _ABOUT_ROWS as error:
            return [Refusal(messages[0], str(error))] if len(messages) == 1 else None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            raise TargetUnavailable(f"PostgreSQL: {error}") from None
        return []

    def check(self) -> None:
        """Raise if the connection is lost."""
        if self._connection is None or self._connection.is_closed():
            raise TargetUnavailable("PostgreSQL has closed the connection")

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            # A server that does not answer would keep a close with good manners waiting.
            connection.terminate()

    async def _insert(self, messages: Sequence[Message]) -> None:
        rows = [
            (
                each.offset,
                _EPOCH + timedelta(microseconds=each.published_at_us),
                self._topic(each.topic),
                payload_of(each, self._settings.payload),
                each.qos,
                each.retain,
                each.publisher,
                _json(each),
            )
            for each in messages
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._connection.execute(_INSERT.format(table=self._table), *columns)


def _json(message: Message) -> str | None:
    pairs = user_properties(message)
    return msgspec.json.encode(pairs).decode() if pairs else None


def open_output(settings: ForwarderConfig, context: Context) -> PostgresOutput:
    """Make the output."""
    assert isinstance(settings, PostgresForwarderConfig)
    return PostgresOutput(settings, context)
