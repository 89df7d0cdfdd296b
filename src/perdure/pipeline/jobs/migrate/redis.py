"""TBMQ 2.x's keys as a source, on one server or a cluster.

Clients are found by SCAN, from their sorted sets and their last packet identifiers, since either
may be there alone. The order is the sorted set's; a member whose message is gone is counted and
stepped over. Nothing is written, not even to clean up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Final, final

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.errors import StorageCorrupt
from perdure.pipeline.jobs.migrate.contract import PAGE_BYTES, PAGE_ENTRIES, Range, Settings
from perdure.pipeline.tbmq import keys
from perdure.pipeline.tbmq.identifiers import resolve
from perdure.pipeline.tbmq.message_json import DamagedEntry, parse_message
from perdure.pipeline.tbmq.pending import Losses, PendingEntry, PendingPage
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, check
from perdure.storage.redis.url import parse_url

_COUNTED: Final = 2_000
"""Sorted sets whose size is asked for at once."""
_CLIENTS: Final = 100
"""Clients whose members are asked for at once."""


@final
class _Member:
    """A member of a sorted set."""

    __slots__ = ("key", "packet_id", "place")

    def __init__(self, key: bytes, place: int, packet_id: int) -> None:
        self.key = key
        self.place = place
        self.packet_id = packet_id
        """The identifier that it gets."""


@final
class _Queue:
    """A client's queue before its messages are read."""

    __slots__ = ("client_id", "last_packet_id", "losses", "members")

    def __init__(
        self, client_id: str, members: Sequence[bytes], last_packet_id: int, limit: int
    ) -> None:
        self.client_id = client_id
        self.losses = Losses(over_limit=max(0, len(members) - limit))
        identifiers = [keys.packet_id_of_member(member) for member in members]
        resolved = resolve(
            identifiers, [False] * len(members), last_packet_id=last_packet_id, unique=True
        )
        self.losses.renumbered = resolved.renumbered
        self.last_packet_id = resolved.last_packet_id
        self.members = [
            _Member(member, place, packet_id)
            for place, (member, packet_id) in enumerate(
                zip(members, resolved.identifiers, strict=True), 1
            )
        ][self.losses.over_limit :]


@final
class TbmqRedisSource:
    """The keys of a TBMQ that is stopped.

    Args:
        url: of the server or cluster.
        prefix: of all its keys.
        clock: what a remaining lifetime is counted from.
    """

    def __init__(self, url: str, prefix: str, *, clock: Clock | None = None) -> None:
        self._address = parse_url(url)
        self._prefix = prefix
        self._clock = clock or SystemClock()
        self._client: RedisClient | None = None
        self._tells_time = False

    async def plan(self, entries_max: int) -> AsyncIterator[Range]:
        """See ``Source.plan``."""
        client = await self._connect()
        found: set[str] = set()
        for messages in (True, False):
            async for page in client.scan(keys.scan_pattern(self._prefix, messages=messages)):
                found.update(
                    name for key in page if (name := keys.client_of(key, self._prefix)) is not None
                )
        clients = sorted(found)
        number = entries = 0
        part: list[str] = []
        for at in range(0, len(clients), _COUNTED):
            names = clients[at : at + _COUNTED]
            for name, size in zip(names, await self._sizes(client, names), strict=True):
                if part and entries + size > entries_max:
                    yield Range(number, entries, clients=tuple(part))
                    number, entries, part = number + 1, 0, []
                entries += max(1, size)
                part.append(name)
        if part:
            yield Range(number, entries, clients=tuple(part))

    async def _sizes(self, client: RedisClient, names: Sequence[str]) -> list[int]:
        sets = [keys.messages_key(self._prefix, name) for name in names]
        replies = await client.execute([Command((b"ZCARD", key), key) for key in sets])
        # A key of another type is nobody's queue.
        return [reply if isinstance(reply, int) else 0 for reply in replies]

    async def read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        """See ``Source.read``."""
        client = await self._connect()
        for at in range(0, len(part.clients), _CLIENTS):
            queues = await self._queues(client, part.clients[at : at + _CLIENTS], settings.limit)
            async for page in self._pages(client, queues, settings.now_us):
                yield page

    async def _queues(self, client: RedisClient, names: Sequence[str], limit: int) -> list[_Queue]:
        commands: list[Command] = []
        for name in names:
            key, last = (
                keys.messages_key(self._prefix, name),
                keys.last_packet_id_key(self._prefix, name),
            )
            commands += (Command((b"ZRANGE", key, 0, -1), key), Command((b"GET", last), last))
        replies = await client.execute(commands)
        queues = []
        for name, members, last_value in zip(names, replies[::2], replies[1::2], strict=True):
            listed = check(members)
            if not isinstance(listed, list):
                raise StorageCorrupt(f"the queue of {name!r} is no sorted set")
            queues.append(
                _Queue(
                    name,
                    [member for member in listed if isinstance(member, bytes)],
                    keys.parse_last_packet_id(
                        last_value if isinstance(last_value, bytes) else None
                    ),
                    limit,
                )
            )
        return queues

    async def _pages(
        self, client: RedisClient, queues: Sequence[_Queue], now_us: int
    ) -> AsyncIterator[PendingPage]:
        """Messages of several queues, asked for in windows that may span them."""
        flat = [(queue, member) for queue in queues for member in queue.members]
        values: dict[bytes, tuple[bytes | None, int]] = {}
        ahead = 0
        for queue in queues:
            parts = _parts(queue.members)
            for number, members in enumerate(parts):
                losses = queue.losses if number == 0 else Losses()
                entries: list[PendingEntry] = []
                for member in members:
                    if member.key not in values:
                        values = await self._values(
                            client, [each.key for _, each in flat[ahead : ahead + PAGE_ENTRIES]]
                        )
                        ahead += PAGE_ENTRIES
                    entry = self._entry(queue, member, *values[member.key], losses)
                    if entry is not None and entry.is_owed(now_us):
                        entries.append(entry)
                    elif entry is not None:
                        losses.expired += 1
                is_last = number == len(parts) - 1
                page = PendingPage(
                    queue.client_id, queue.last_packet_id, entries, number == 0, is_last, losses
                )
                for small in _bounded(page):
                    yield small

    async def _values(
        self, client: RedisClient, wanted: Sequence[bytes]
    ) -> dict[bytes, tuple[bytes | None, int]]:
        """Messages, and when Redis forgets each; 0 = never."""
        commands: list[Command] = []
        ask = b"PEXPIRETIME" if self._tells_time else b"PTTL"
        for key in wanted:
            commands += (Command((b"GET", key), key), Command((ask, key), key))
        replies = [check(reply) for reply in await client.execute(commands)]
        start_us = 0 if self._tells_time else self._clock.now_us()
        found: dict[bytes, tuple[bytes | None, int]] = {}
        for key, value, ms in zip(wanted, replies[::2], replies[1::2], strict=True):
            assert isinstance(ms, int)
            forget_at_us = start_us + ms * 1000 if ms >= 0 else 0
            found[key] = (value if isinstance(value, bytes) else None, forget_at_us)
        return found

    def _entry(
        self, queue: _Queue, member: _Member, value: bytes | None, forget_at_us: int, losses: Losses
    ) -> PendingEntry | None:
        if value is None:
            losses.dangling += 1
            return None
        try:
            return parse_message(
                value, place=member.place, packet_id=member.packet_id, forget_at_us=forget_at_us
            )
        except DamagedEntry as error:
            name = member.key.decode(errors="replace")
            losses.damaged.append(f"{queue.client_id!r} {name}: {error}")
            return None

    async def _connect(self) -> RedisClient:
        if self._client is None:
            self._client = client = await RedisClient.connect(self._address)
            # Redis 7 tells when a key expires; one before it, in how long.
            (reply,) = await client.execute([Command((b"PEXPIRETIME", b"perdure"), b"perdure")])
            self._tells_time = isinstance(reply, int)
        return self._client

    async def close(self) -> None:
        """See ``Source.close``."""
        if self._client is not None:
            await self._client.close()


def _parts(members: list[_Member]) -> list[list[_Member]]:
    bounds = [*range(0, len(members), PAGE_ENTRIES), len(members)]
    return [members[first:end] for first, end in pairwise(bounds)] or [[]]


def _bounded(page: PendingPage) -> list[PendingPage]:
    """A page, or several if its payloads are large."""
    pages: list[PendingPage] = []
    entries: list[PendingEntry] = []
    size = 0
    for entry in page.entries:
        if entries and size + len(entry.payload) > PAGE_BYTES:
            pages.append(msgspec.structs.replace(page, entries=entries, is_last=False))
            page = msgspec.structs.replace(page, is_first=False, losses=Losses())
            entries, size = [], 0
        entries.append(entry)
        size += len(entry.payload)
    pages.append(msgspec.structs.replace(page, entries=entries))
    return pages
