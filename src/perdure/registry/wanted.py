"""Who wants a change: one round trip, a second one where filters hold, and one more for each
thousand members of the largest set.

The sets of the channels are asked for together with the filters, for those without a filter are
wanted whatever the filters say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.content import parse_filter
from perdure.content.document import Content
from perdure.errors import ConfigError
from perdure.registry.channel import Channel, DeviceTransport, Keys, check_channel, patterns
from perdure.registry.reading import pairs_of, scan_command, scan_reply, text_of
from perdure.storage.redis import Command, RedisClient, Reply
from perdure.storage.redis.commands import check

FILTERS_MAX: Final = 10_000
"""Filters of one channel that are tried on a change; the seed's own answer for more is another
channel."""


@final
class Wanted(msgspec.Struct, frozen=True):
    """Who wants a change.

    Attributes:
        members: ``device|transport``, each once and sorted, as the sets have them.
        unreadable: filters, as channel key and id, that somebody has written and nobody here can
            read: their subscribers are left out.
    """

    members: list[str]
    unreadable: list[tuple[str, str]]

    @property
    def devices(self) -> list[DeviceTransport]:
        """The members, sorted by device; what is none (no bar, nothing before or behind it) is
        left out, for nobody could be reached by it."""
        split = (member.rpartition("|") for member in self.members)
        return sorted(DeviceTransport(one, by) for one, _, by in split if one and by)

    def by_transport(self) -> dict[str, list[str]]:
        """Devices by transport, sorted: what goes to each transport's workers. As ``devices``."""
        found: dict[str, list[str]] = {}
        for member in self.members:
            device_id, _, transport = member.rpartition("|")
            if device_id and transport:
                of_transport = found.get(transport)
                if of_transport is None:
                    of_transport = found[transport] = []
                of_transport.append(device_id)
        for of_transport in found.values():
            of_transport.sort()
        return found


async def find_wanting(
    client: RedisClient, keys: Keys, change: Channel, content: Content
) -> Wanted:
    """Which devices want a change.

    Raises:
        ConfigError: the change is no channel, or a channel has more than ``FILTERS_MAX`` filters.
    """
    channels = [channel.key for channel in patterns(check_channel(change))]
    places = [keys.partition(channel) for channel in channels]
    hashes = [keys.filters_of(channel) for channel in channels]
    todo: dict[bytes, bytes] = {
        keys.subscription_in(channel, "", place): b"0"
        for channel, place in zip(channels, places, strict=True)
    }
    scans = [scan_command(key, at) for key, at in todo.items()]
    replies = await client.execute([*(Command(("HGETALL", key), key) for key in hashes), *scans])
    found: set[bytes] = set()
    todo = _following(todo, replies[len(hashes) :], found)
    unreadable: list[tuple[str, str]] = []
    for channel, place, reply in zip(channels, places, replies, strict=False):
        for filter_id in _fulfilled(channel, pairs_of(check(reply)), content, unreadable):
            todo[keys.subscription_in(channel, filter_id, place)] = b"0"
    while todo:
        replies = await client.execute([scan_command(key, at) for key, at in todo.items()])
        todo = _following(todo, replies, found)
    return Wanted(sorted(map(text_of, found)), unreadable)


def _following(
    todo: dict[bytes, bytes], replies: Sequence[Reply], found: set[bytes]
) -> dict[bytes, bytes]:
    """Take the pages of sets in; where those that have more go on."""
    following: dict[bytes, bytes] = {}
    for key, reply in zip(todo, replies, strict=True):
        at, members = scan_reply(reply)
        found.update(members)
        if at != b"0":
            following[key] = at
    return following


def _fulfilled(
    channel: str,
    filters: dict[str, str],
    content: Content,
    unreadable: list[tuple[str, str]],
) -> list[str]:
    """The filters of a channel that hold."""
    if len(filters) > FILTERS_MAX:
        raise ConfigError(f"{channel} has more than {FILTERS_MAX} filters")
    found: list[str] = []
    for filter_id, text in filters.items():
        try:
            is_fulfilled = parse_filter(text).holds_for(content)
        except ValueError:
            unreadable.append((channel, filter_id))
            continue
        if is_fulfilled:
            found.append(filter_id)
    return found
