"""Commands for many partitions, some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, check
from perdure.storage.redis.replies import number_of

T = TypeVar("T")

AT_ONCE: Final = 128
"""Partitions that are read, swept or split in one batch."""


def in_batches(items: Iterable[T]) -> Iterator[list[T]]:
    """``AT_ONCE`` of them at a time, the last time what is left."""
    rest = iter(items)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch


async def numbers(client: RedisClient, commands: Sequence[Command]) -> list[int]:
    """What commands answer that answer with a number.

    Raises:
        StorageError, UsageError: one was refused.
    """
    return [number_of(check(reply)) for reply in await client.execute(commands)]


async def count_fields(client: RedisClient, keys: Iterable[bytes]) -> int:
    """How many fields hashes have together."""
    total = 0
    for batch in in_batches(keys):
        total += sum(await numbers(client, [Command(("HLEN", key), key) for key in batch]))
    return total
