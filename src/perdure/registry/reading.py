"""Sets and hashes of any size, read in pages: one of a million may not hold up the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perdure.storage.redis import Command, RedisClient, Reply
from perdure.storage.redis.commands import check

PAGE: Final = 1_000
"""Members of a set that are asked for at once."""


async def scanned(client: RedisClient, name: str, keys: Sequence[bytes]) -> list[str]:
    """What is in sets (``SSCAN``) or hashes (``HSCAN``), a round trip for a page of each."""
    found: list[str] = []
    todo: dict[bytes, bytes] = dict.fromkeys(keys, b"0")
    while todo:
        replies = await client.execute(
            [Command((name, key, at, "COUNT", PAGE), key) for key, at in todo.items()]
        )
        following: dict[bytes, bytes] = {}
        for key, reply in zip(todo, replies, strict=True):
            answer = check(reply)
            assert isinstance(answer, list)
            at, page = answer
            assert isinstance(page, list)
            found += [each.decode() for each in page if isinstance(each, bytes)]
            if isinstance(at, bytes) and at != b"0":
                following[key] = at
        todo = following
    return found


def fields_of(found: Sequence[str]) -> list[str]:
    """The fields that HSCAN has found, each once, without their values."""
    return list(dict.fromkeys(found[::2]))


def pairs_of(reply: bytes | int | list[Reply] | None) -> dict[str, str]:
    """What HGETALL has answered."""
    assert isinstance(reply, list)
    texts = [part.decode() for part in reply if isinstance(part, bytes)]
    return dict(zip(texts[::2], texts[1::2], strict=True))
