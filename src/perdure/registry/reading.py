"""Sets and hashes of any size, read in pages: one of a million may not hold up the server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final, cast, final

import msgspec

from perdure.registry.channel import PART_CHARS_MAX, Channel, Keys
from perdure.storage.redis import Command, RedisClient, Reply
from perdure.storage.redis.commands import check

PAGE: Final = 1_024
"""Members of a set that are asked for at once; a power of two, as are the tables of Redis, so that
one more is no page of its own."""
_LITERAL: Final = re.compile(r"[\\*?\[\]^-]")
"""What a pattern of Redis would take for something else."""
_PART: Final = rb"[^:]{1,%d}" % (4 * PART_CHARS_MAX)
_REST: Final = re.compile(
    rb"app:%b(?::user:%b)?:model:%b(?::id:%b)?(?::filter:.+)?:partition:\d+" % ((_PART,) * 4),
    re.DOTALL,
)
"""The name of a subscription, behind the prefix; as ``Keys.parse_subscription``, for many."""


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


def scan_command(key: bytes, at: bytes = b"0", pattern: str = "") -> Command:
    """A page of a set (``SSCAN``).

    Args:
        key: of the set.
        at: where it begins, as the page before has told.
        pattern: which members (``MATCH``); empty = all.
    """
    only = ("MATCH", pattern) if pattern else ()
    return Command(("SSCAN", key, at, *only, "COUNT", PAGE), key)


def scan_reply(reply: Reply) -> tuple[bytes, list[bytes]]:
    """Where the next page of a set begins (``b"0"`` = there is none), and the members of this one.

    Raises:
        StorageError, UsageError: what an error reply means.
    """
    answer = check(reply)
    assert isinstance(answer, list)
    at, page = answer
    assert isinstance(at, bytes)
    assert isinstance(page, list)
    return at, cast("list[bytes]", page)


def texts_of(members: Iterable[bytes]) -> list[str]:
    """Members as text; bytes that are none, which only others can have written, are replaced."""
    try:
        return [member.decode() for member in members]
    except UnicodeDecodeError:
        return [member.decode(errors="replace") for member in members]


async def scanned(client: RedisClient, keys: Sequence[bytes]) -> list[str]:
    """What is in sets (``SSCAN``), a round trip for a page of each; a member may come twice."""
    found: list[str] = []
    async for page in scanned_pages(client, keys):
        for members in page.values():
            found += members
    return found


async def scanned_pages(
    client: RedisClient, keys: Sequence[bytes], pattern: str = ""
) -> AsyncIterator[dict[bytes, list[str]]]:
    """What is in each of some sets, a round trip at a time; a member may come twice.

    Args:
        client: connected.
        keys: of the sets.
        pattern: which members (``MATCH``); empty = all.
    """
    todo: dict[bytes, bytes] = dict.fromkeys(keys, b"0")
    while todo:
        replies = await client.execute([scan_command(key, at, pattern) for key, at in todo.items()])
        following: dict[bytes, bytes] = {}
        found: dict[bytes, list[str]] = {}
        for key, reply in zip(todo, replies, strict=True):
            at, page = scan_reply(reply)
            if page:
                found[key] = texts_of(page)
            if at != b"0":
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
    found: dict[str, dict[Subscribed, None]] = {each: {} for each in device_ids}
    pattern = ""
    if len(found) == 1:  # the server may choose
        pattern = _LITERAL.sub(r"\\\g<0>", next(iter(found))) + "|*"
    async for names in client.scan(_pattern(keys)):
        # A name that comes twice is looked at twice: that is cheaper than to remember all.
        async for page in scanned_pages(client, _only_sets(keys, names), pattern):
            for key, members in page.items():
                _note(found, keys, key, members)
    return {
        name: sorted(each, key=lambda one: (one.channel.key, one.filter_id, one.transport))
        for name, each in found.items()
    }


def _note(
    found: dict[str, dict[Subscribed, None]], keys: Keys, key: bytes, members: Sequence[str]
) -> None:
    """Take in what the members of one set that are asked about subscribe to."""
    for member in members:
        device_id, _, transport = member.rpartition("|")
        of_device = found.get(device_id)
        if of_device is None:
            continue
        channel_key, filter_id, _ = keys.parse_subscription(key)
        of_device[Subscribed(Channel.parse(channel_key), filter_id, transport)] = None


def _pattern(keys: Keys) -> bytes:
    return keys.prefix.encode() + b"subscription:*"


def _only_sets(keys: Keys, names: Sequence[bytes]) -> list[bytes]:
    """Names that are of subscriptions; somebody else's may look alike."""
    begin, is_rest = keys.prefix.encode() + b"subscription:", _REST.fullmatch
    return [
        name for name in names if name.startswith(begin) and is_rest(name, len(begin)) is not None
    ]


async def subscription_pages(client: RedisClient, keys: Keys) -> AsyncIterator[list[bytes]]:
    """Keys of subscriptions, each once, in pages of SCAN."""
    seen: set[bytes] = set()
    async for page in client.scan(_pattern(keys)):
        found = [key for key in _only_sets(keys, list(dict.fromkeys(page))) if key not in seen]
        seen.update(found)
        yield found


def pairs_of(reply: bytes | int | list[Reply] | None) -> dict[str, str]:
    """What HGETALL has answered."""
    assert isinstance(reply, list)
    texts = [part.decode() for part in reply if isinstance(part, bytes)]
    return dict(zip(texts[::2], texts[1::2], strict=True))
