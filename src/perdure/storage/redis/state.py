"""A broker's whole state in Redis, read: rows and queues, over a client's connections.

It claims nothing and writes nothing, so it works beside the broker whose state it is; ``driver``
adds the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perdure.errors import ConfigError, StorageUnavailable
from perdure.storage.contract import ReadResult
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Reply, check
from perdure.storage.redis.compact import CompactLayout, page_of, stats_of
from perdure.storage.redis.node import ClientSettings
from perdure.storage.redis.transactions import Names
from perdure.storage.redis.url import parse_url
from perdure.storage.remote.driver import TABLES, Kind, Owner, Row, messages_of

BYTES_MAX_NONE: Final = 1 << 40


class RedisState:
    """The state of one broker on a Redis server or cluster.

    Args:
        url: see ``url``.
        prefix: of all keys.
        command_timeout_s: how long an answer may take.

    Attributes:
        place: the server as a person knows it, without secrets.
    """

    def __init__(self, url: str, *, prefix: str, command_timeout_s: float) -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise ConfigError(
                "a prefix has at least one character and no braces", path="storage.redis.prefix"
            )
        self._address = parse_url(url)
        self.place = self._address.shown
        self.prefix = prefix
        self._names = Names(prefix)
        self._layout = CompactLayout(f"{prefix}:")
        self._settings = ClientSettings(timeout_s=command_timeout_s)
        self._reader: RedisClient | None = None

    async def _connect(self) -> RedisClient:
        return await RedisClient.connect(
            self._address, settings=self._settings, code=self._layout.code
        )

    async def look(self) -> bool:
        """Connect for reading alone, beside the writer; whether a broker keeps its state here is
        for the caller to see."""
        self._reader = await self._connect()
        return True

    async def close(self) -> None:
        """Give the connections back."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _execute(self, commands: Sequence[Command]) -> list[Reply]:
        reader = self._reader
        if reader is None:
            raise StorageUnavailable(f"{self.place}: there is no connection")
        return [check(reply) for reply in await reader.execute(commands)]

    async def get(self, rows: Sequence[tuple[str, Owner, bytes]]) -> list[bytes | None]:
        commands = []
        for table, owner, key in rows:
            place = self._names.values(table, owner)
            commands.append(Command((b"HGET", place, key), place))
        return [_value(reply) for reply in await self._execute(commands)]

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
        kind = TABLES[table]
        if kind is Kind.VALUES:
            (found,) = await self.rows_of(table, [owner])
            return [row for row in found if start <= row[0] and (not end or row[0] < end)][:limit]
        rows: list[Row] = []
        while len(rows) < limit:
            wanted = limit - len(rows)
            keys = await self._keys(table, owner, start, end, wanted)
            if keys and kind is Kind.ORDERED and not names_only:
                place = self._names.values(table, owner)
                (values,) = await self._execute([Command((b"HMGET", place, *keys), place)])
                assert isinstance(values, list)
                # One that was deleted between the two commands has no value.
                rows += [
                    (key, value)
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(value, bytes)
                ]
            else:
                rows += [(key, b"") for key in keys]
            if len(keys) < wanted:
                break
            start = keys[-1] + b"\0"
        return rows

    async def _keys(
        self, table: str, owner: Owner, start: bytes, end: bytes, limit: int
    ) -> list[bytes]:
        index = self._names.index(table, owner)
        low = b"[" + start if start else b"-"
        high = b"(" + end if end else b"+"
        arguments = (b"ZRANGE", index, low, high, b"BYLEX", b"LIMIT", 0, min(limit, 1 << 31))
        (reply,) = await self._execute([Command(arguments, index)])
        assert isinstance(reply, list)
        return [key for key in reply if isinstance(key, bytes)]

    async def rows_of(self, table: str, owners: Sequence[Owner]) -> list[list[Row]]:
        places = [self._names.values(table, owner) for owner in owners]
        replies = await self._execute([Command((b"HGETALL", place), place) for place in places])
        return [_pairs(reply) for reply in replies]

    async def queue_sizes(self, client_ids: Sequence[str]) -> list[int]:
        replies = await self._execute([self._layout.stats(client_id) for client_id in client_ids])
        sizes = []
        for client_id, reply in zip(client_ids, replies, strict=True):
            stats = stats_of(client_id, reply)
            sizes.append(0 if stats is None else stats.publish_count + stats.pubrel_count)
        return sizes

    async def read_queue(
        self, client_id: str, *, after_serial: int, until_serial: int, limit: int, bytes_max: int
    ) -> ReadResult:
        most = bytes_max or BYTES_MAX_NONE
        command = self._layout.read(
            client_id, after_serial=after_serial, limit=limit, bytes_max=most
        )
        (reply,) = await self._execute([command])
        page, _ = page_of(reply, after_serial=after_serial, limit=limit, bytes_max=most, now_us=0)
        return messages_of(page.entries, page.next_after, until_serial=until_serial)


def _value(reply: Reply) -> bytes | None:
    assert reply is None or isinstance(reply, bytes)
    return reply


def _pairs(reply: Reply) -> list[Row]:
    assert isinstance(reply, list)
    rows: list[Row] = []
    for key, value in zip(reply[::2], reply[1::2], strict=True):
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        rows.append((key, value))
    return sorted(rows)
