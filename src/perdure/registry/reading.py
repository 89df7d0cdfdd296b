"""Sets and hashes of any size, read in pages: one of a million may not hold up the server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, final

import msgspec

from perdure.errors import ConfigError
from perdure.registry.channel import Channel, DeviceTransport, Keys
from perdure.storage.redis import Command, RedisClient, Reply
from perdure.storage.redis.commands import check

PAGE: Final = 1_000
"""Members of a set that are asked for at once."""
_LITERAL: Final = re.compile(r"[\\*?\[\]^-]")
"""What a pattern of Redis would take for something else."""


@final
class Subscribed(msgspec.Struct, frozen=True):
    """A subscription of a device.

    Attributes:
        channel: to what.
        filter_id: with which filter; empty = none.
        transport: by which transport.
    """

    channel: Channel
    filter_id: str
    transport: str


async def scanned(client: RedisClient, keys: Sequence[bytes]) -> list[str]:
    """What is in sets (``SSCAN``), a round trip for a page of each."""
    found: list[str] = []
    for members in (await scanned_each(client, keys)).values():
        found += members
    return found


async def scanned_each(
    client: RedisClient, keys: Sequence[bytes], pattern: str = ""
) -> dict[bytes, list[str]]:
    """What is in each of some sets; a member may come twice.

    Args:
        client: connected.
        keys: of the sets.
        pattern: which members (``MATCH``); empty = all.
    """
    found: dict[bytes, list[str]] = {key: [] for key in keys}
    async for page in scanned_pages(client, keys, pattern):
        for key, members in page.items():
            found[key] += members
    return found


async def scanned_pages(
    client: RedisClient, keys: Sequence[bytes], pattern: str = ""
) -> AsyncIterator[dict[bytes, list[str]]]:
    """``scanned_each``, a round trip at a time."""
    only = ("MATCH", pattern) if pattern else ()
    todo: dict[bytes, bytes] = dict.fromkeys(keys, b"0")
    while todo:
        replies = await client.execute(
            [Command(("SSCAN", key, at, *only, "COUNT", PAGE), key) for key, at in todo.items()]
        )
        following: dict[bytes, bytes] = {}
        found: dict[bytes, list[str]] = {}
        for key, reply in zip(todo, replies, strict=True):
            answer = check(reply)
            assert isinstance(answer, list)
            at, page = answer
            assert isinstance(page, list)
            found[key] = [each.decode() for each in page if isinstance(each, bytes)]
            if isinstance(at, bytes) and at != b"0":
                following[key] = at
        yield found
        todo = following


async def held_by(
    client: RedisClient, keys: Keys, device_ids: Collection[str]
) -> dict[str, list[Subscribed]]:
    """What devices subscribe to, in one look at all subscriptions.

    The keys of the seed tell who subscribes to a channel, not to what a device does, and an index
    would take more memory than they do.
    """
    found: dict[str, list[Subscribed]] = {each: [] for each in device_ids}
    pattern = ""
    if len(found) == 1:  # the server may choose
        pattern = _LITERAL.sub(r"\\\g<0>", next(iter(found))) + "|*"
    async for page in subscription_pages(client, keys):
        for key, members in (await scanned_each(client, page, pattern)).items():
            for device in map(DeviceTransport.parse, set(members)):
                if device.device_id in found:
                    channel_key, filter_id, _ = keys.parse_subscription(key)
                    found[device.device_id].append(
                        Subscribed(Channel.parse(channel_key), filter_id, device.transport)
                    )
    for each in found.values():
        each.sort(key=lambda one: (one.channel.key, one.filter_id, one.transport))
    return found


async def subscription_pages(client: RedisClient, keys: Keys) -> AsyncIterator[list[bytes]]:
    """Keys of subscriptions, each once, in pages of SCAN."""
    seen: set[bytes] = set()
    async for page in client.scan(keys.prefix.encode() + b"subscription:*"):
        found = [
            key for key in dict.fromkeys(page) if key not in seen and _is_subscription(keys, key)
        ]
        seen.update(found)
        yield found


def _is_subscription(keys: Keys, key: bytes) -> bool:
    """Whether a key is of a subscription; somebody else's may look alike."""
    try:
        channel_key, _, _ = keys.parse_subscription(key)
        Channel.parse(channel_key)
    except ConfigError:
        return False
    return True


def pairs_of(reply: bytes | int | list[Reply] | None) -> dict[str, str]:
    """What HGETALL has answered."""
    assert isinstance(reply, list)
    texts = [part.decode() for part in reply if isinstance(part, bytes)]
    return dict(zip(texts[::2], texts[1::2], strict=True))
