"""The registry as its description says it, and nothing more: what ours is compared with.

Keys and types are those of nexxus-redis (``perdure.registry.channel``). A subscription is a member
of a set, a filter a field of a hash; whoever looks up takes all sets and hashes whole, and walks
each filter for each change. Commands of a page go out together, as the JavaScript client sends
what one turn of its loop has asked for.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final, final

from perdure.storage.redis import Command, RedisClient
from perdure.storage.redis.commands import check

PARTITIONS: Final = 1024
_OPERATORS: Final[dict[str, Any]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: value is not None and value > wanted,
    "$gte": lambda value, wanted: value is not None and value >= wanted,
    "$lt": lambda value, wanted: value is not None and value < wanted,
    "$lte": lambda value, wanted: value is not None and value <= wanted,
    "$in": lambda value, wanted: value in wanted,
}

Subscription = tuple[str, str, str, str]
"""Device with its transport, channel, filter id and filter (JSON); empty = none."""


def key_of(channel: str, filter_id: str) -> str:
    """The set of a channel's subscribers."""
    within = f":filter:{filter_id}" if filter_id else ""
    partition = zlib.crc32(channel.encode()) % PARTITIONS
    return f"nxx:subscription:{channel}{within}:partition:{partition}"


@final
class SeedRegistry:
    """Subscriptions on a Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def subscribe(self, page: Sequence[Subscription]) -> None:
        """Add subscriptions."""
        commands = []
        for device, channel, filter_id, text in page:
            if filter_id:
                commands.append(("HSET", f"nxx:filters:{channel}", filter_id, text))
            commands.append(("SADD", key_of(channel, filter_id), device))
        await self._ask(commands)

    async def unsubscribe(self, page: Sequence[Subscription]) -> None:
        """Take subscriptions back."""
        await self._ask([("SREM", key_of(each[1], each[2]), each[0]) for each in page])

    async def wanting(
        self, app: str, user: str, model: str, name: str, document: dict[str, Any]
    ) -> list[str]:
        """Who wants a change."""
        channels = [
            f"app:{app}{of_user}:model:{model}{of_object}"
            for of_user in ("", f":user:{user}")
            for of_object in ("", f":id:{name}")
        ]
        keys = [key_of(channel, "") for channel in channels]
        hashes = await self._ask([("HGETALL", f"nxx:filters:{each}") for each in channels])
        for channel, pairs in zip(channels, hashes, strict=True):
            for filter_id, text in zip(pairs[::2], pairs[1::2], strict=True):
                if _fulfils(json.loads(text), document):
                    keys.append(key_of(channel, filter_id.decode()))
        sets = await self._ask([("SMEMBERS", key) for key in keys])
        return sorted({member.decode() for members in sets for member in members})

    async def _ask(self, commands: Sequence[tuple[str, ...]]) -> list[Any]:
        replies = await self._client.execute([Command(each, each[1].encode()) for each in commands])
        return [check(reply) for reply in replies]


def _fulfils(wanted: dict[str, Any], document: dict[str, Any]) -> bool:
    return all(
        _OPERATORS[name](document.get(field), operand)
        for field, operators in wanted.items()
        for name, operand in operators.items()
    )
