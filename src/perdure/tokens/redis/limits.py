"""Up to where a server keeps a hash as a listpack: one piece of memory for all of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from perdure.errors import StorageError, UsageError
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Reply
from perdure.storage.redis.replies import settings_of


@final
class ListpackLimits(NamedTuple):
    """Limits of a server, or the least of a cluster's; by default less than any has by itself.

    Attributes:
        entries: fields of a hash.
        value_bytes: of a field or a value.
    """

    entries: int = 128
    value_bytes: int = 64


async def learn_limits(client: RedisClient) -> ListpackLimits:
    """Ask the server; an account that may not ask gets the defaults."""
    # Redis before 7.0 calls them ziplists; later ones have both names, with one value.
    try:
        entries = _numbers(
            await client.on_masters(Command(("CONFIG", "GET", "hash-max-*-entries")))
        )
        values = _numbers(await client.on_masters(Command(("CONFIG", "GET", "hash-max-*-value"))))
    except (StorageError, UsageError):
        return ListpackLimits()
    default = ListpackLimits()
    return ListpackLimits(
        max(1, min(entries, default=default.entries)), min(values, default=default.value_bytes)
    )


def _numbers(replies: Sequence[Reply]) -> list[int]:
    """The numbers of CONFIG GET, of all nodes."""
    return [int(value) for reply in replies for value in settings_of(reply).values()]
