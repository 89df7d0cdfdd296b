"""A page of the tokens of ``planned``: partitions in the order of identifiers, some at a time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final, Protocol, final

from perdure.errors import StorageCorrupt
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, check
from perdure.tokens.redis.handles import KEY_BYTES
from perdure.tokens.redis.plan import Plan, id_of, partition_of
from perdure.tokens.values import expiry_of

PARTITIONS_AT_ONCE: Final = 32
"""Hashes that one command after the other reads; each has some hundred entries."""

PARTITIONS_MAX: Final = 1_024
"""Hashes that are looked at for one page, and so tokens: some hundred thousand at most."""


class Places(Protocol):
    """Where a store keeps its partitions."""

    def key_of(self, bits: int, number: int) -> bytes:
        """The hash of a partition."""
        ...


@final
class Naming:
    """The key under which lists name tokens, one for all who use a store.

    Args:
        client: of the server.
        place: where the server keeps it.
    """

    def __init__(self, client: RedisClient, place: bytes) -> None:
        self._client = client
        self._place = place
        self._key = b""

    async def key(self) -> bytes:
        """It, made if it is not there."""
        if not self._key:
            place = self._place
            made = Command(("SET", place, secrets.token_bytes(KEY_BYTES), "NX"), place)
            await self._client.call(made)
            found = await self._client.call(Command(("GET", place), place))
            if not isinstance(found, bytes) or len(found) != KEY_BYTES:
                raise StorageCorrupt("the token store does not say how lists name tokens")
            self._key = found
        return self._key


async def values_after(
    client: RedisClient, places: Places, plan: Plan, after: bytes, now_s: int, wanted: int
) -> tuple[dict[bytes, bytes], bytes | None]:
    """Values of tokens that hold, by identifier, in order.

    Args:
        client: of the server.
        places: of the store.
        plan: in force.
        after: the last identifier of the page before; empty = from the beginning.
        now_s: Unix time, seconds.
        wanted: how many, about: the last partitions are read whole.

    Returns:
        The values, and the identifier below which there is no more to look at; None = that was all.
    """
    count = 1 << plan.bits
    begin = partition_of(after, plan.bits) if after else 0
    end = min(count, begin + PARTITIONS_MAX)
    found: dict[bytes, bytes] = {}
    for first in range(begin, end, PARTITIONS_AT_ONCE):
        numbers = range(first, min(first + PARTITIONS_AT_ONCE, end))
        wheres = [where for number in numbers for where in _where(plan, number)]
        keys = [places.key_of(*where) for where in wheres]
        replies = await client.execute([Command(("HGETALL", key), key) for key in keys])
        rows = [
            row
            for where, reply in zip(wheres, replies, strict=True)
            for row in _rows(where, check(reply))
        ]
        found.update(sorted(row for row in rows if row[0] > after and expiry_of(row[1]) > now_s))
        if len(found) >= wanted:
            end = numbers[-1] + 1
            break
    ordered = dict(sorted(found.items()))
    return ordered, None if end >= count else _last_of(end - 1, plan.bits)


def _where(plan: Plan, number: int) -> Iterator[tuple[int, int]]:
    """The places of a partition; while it is split, the newer ones last, as they count."""
    yield plan.bits, number
    if plan.is_splitting:
        yield plan.bits + 1, 2 * number
        yield plan.bits + 1, 2 * number + 1


def _rows(where: tuple[int, int], reply: object) -> Iterator[tuple[bytes, bytes]]:
    if not isinstance(reply, list):
        raise StorageCorrupt("a partition of the token store is no hash")
    bits, number = where
    for field, value in zip(reply[::2], reply[1::2], strict=True):
        if isinstance(field, bytes) and isinstance(value, bytes):
            yield id_of(field, bits, number), value


def _last_of(number: int, bits: int) -> bytes:
    """The greatest identifier that a partition may have."""
    head = ((number + 1) << (40 - bits)) - 1
    return head.to_bytes(5, "big") + b"\xff" * 15
