"""Who wants a change: one round trip, and one more for each thousand members of the largest set.

The sets of the channels are asked for together with the filters: those without a filter are wanted
whatever the filters say, and of the others those whose filter would hold, if filters are as they
were (``KnownFilters``). What was not foreseen takes a second round trip.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final, cast, final

import msgspec

from perdure.content import parse_filter
from perdure.content.document import Content
from perdure.errors import ConfigError
from perdure.registry.channel import Channel, DeviceTransport, Keys, check_channel, patterns
from perdure.registry.reading import PAGE, pairs_of, scan_command, scan_reply, texts_of
from perdure.storage.redis import Command, RedisClient, Reply
from perdure.storage.redis.commands import check

FILTERS_MAX: Final = 10_000
"""Filters of one channel that are tried on a change; the seed's own answer for more is another
channel."""


KNOWN_CHANNELS_MAX: Final = 4_096
KNOWN_FILTERS_MAX: Final = 100
"""Filters of a channel; one that has more is looked at anew each time."""

UNASKED: Final = b""
"""Where a set is read that nobody has looked into; otherwise the cursor of ``SSCAN``."""


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


@final
class KnownFilters:
    """The filters that channels had when they were looked at: which sets a look-up will need.

    They only say what to ask for. Who is in the answer is decided by the filters that come with it.
    """

    __slots__ = ("_filters",)

    def __init__(self) -> None:
        self._filters: dict[str, dict[str, str]] = {}

    def of(self, channel: str) -> dict[str, str]:
        """Filters by id."""
        return self._filters.get(channel, {})

    def note(self, channel: str, filters: dict[str, str]) -> None:
        """What a channel has."""
        if filters == self._filters.get(channel, {}):
            return
        self._filters.pop(channel, None)
        if 0 < len(filters) <= KNOWN_FILTERS_MAX:
            if len(self._filters) >= KNOWN_CHANNELS_MAX:
                del self._filters[next(iter(self._filters))]
            self._filters[channel] = filters


async def find_wanting(
    client: RedisClient, keys: Keys, change: Channel, content: Content, known: KnownFilters
) -> Wanted:
    """Which devices want a change.

    Raises:
        ConfigError: the change is no channel, or a channel has more than ``FILTERS_MAX`` filters.
    """
    channels = [channel.key for channel in patterns(check_channel(change))]
    places = [keys.partition(channel) for channel in channels]
    each = list(zip(channels, places, strict=True))
    unfiltered = [keys.subscription_in(channel, "", place) for channel, place in each]
    guessed = [
        keys.subscription_in(channel, filter_id, place)
        for channel, place in each
        for filter_id in _fulfilled(known.of(channel), content, [])
    ]
    hashes = [keys.filters_of(channel) for channel in channels]
    todo = dict.fromkeys([*unfiltered, *guessed], UNASKED)
    replies = await client.execute(
        [*(Command(("HGETALL", key), key) for key in hashes), *(_ask(key) for key in todo)]
    )
    needed = dict.fromkeys(unfiltered, UNASKED)
    unreadable: list[tuple[str, str]] = []
    for (channel, place), reply in zip(each, replies, strict=False):
        filters = pairs_of(check(reply))
        if len(filters) > FILTERS_MAX:
            raise ConfigError(f"{channel} has more than {FILTERS_MAX} filters")
        known.note(channel, filters)
        wrong: list[str] = []
        for filter_id in _fulfilled(filters, content, wrong):
            needed[keys.subscription_in(channel, filter_id, place)] = UNASKED
        unreadable += ((channel, filter_id) for filter_id in wrong)
    found: set[bytes] = set()
    following = _take_in(todo, replies[len(hashes) :], needed, found)
    following.update((key, UNASKED) for key in needed if key not in todo)
    while following:
        replies = await client.execute([_ask(key, at) for key, at in following.items()])
        following = _take_in(following, replies, needed, found)
    return Wanted(sorted(texts_of(found)), unreadable)


def _ask(key: bytes, at: bytes = UNASKED) -> Command:
    """The whole of a small set, or a page of one that has turned out large.

    ``SRANDMEMBER`` of more members than there are is ``SMEMBERS``, a fourth faster than ``SSCAN``;
    of fewer it is a bounded step, where ``SMEMBERS`` would hold up the server.
    """
    if at == UNASKED:
        return Command(("SRANDMEMBER", key, PAGE), key)
    return scan_command(key, at)


def _take_in(
    asked: Mapping[bytes, bytes],
    replies: Sequence[Reply],
    needed: Container[bytes],
    found: set[bytes],
) -> dict[bytes, bytes]:
    """Take in what sets have answered; where those go on that have more."""
    following: dict[bytes, bytes] = {}
    for (key, asked_at), reply in zip(asked.items(), replies, strict=True):
        if key not in needed:
            continue
        if asked_at == UNASKED:
            some = check(reply)
            assert isinstance(some, list)
            at, members = b"0", cast("list[bytes]", some)
            is_all = len(members) < PAGE
        else:
            at, members = scan_reply(reply)
            is_all = at == b"0"
        found.update(members)
        if not is_all:
            following[key] = at
    return following


def _fulfilled(filters: Mapping[str, str], content: Content, unreadable: list[str]) -> list[str]:
    """The filters that hold, by id."""
    found: list[str] = []
    for filter_id, text in filters.items():
        try:
            is_fulfilled = parse_filter(text).holds_for(content)
        except ValueError:
            unreadable.append(filter_id)
            continue
        if is_fulfilled:
            found.append(filter_id)
    return found
