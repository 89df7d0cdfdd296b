"""What is written for a device: commands, in the steps in which they go out. Pure.

Commands of one step may go out together, for many devices at once; a step begins when the one
before it is answered, so that what is cut off in the middle misleads nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from zlib import crc32

from perdure.content import canonical
from perdure.errors import ConfigError
from perdure.registry.channel import (
    Channel,
    DeviceTransport,
    Keys,
    check_device,
    checked_key,
    filter_id_of,
)
from perdure.registry.device import connected_fields, disconnected_fields, iso
from perdure.registry.packing import lengthen, shorten
from perdure.storage.redis import Command


def connected(
    keys: Keys,
    device: DeviceTransport,
    *,
    now_us: int,
    user_id: str = "",
    user_agent: str = "",
    worker: str = "",
) -> list[Command]:
    """A device is connected by a transport; one step."""
    check_device(device)
    fields = connected_fields(
        device.transport, iso(now_us), user_id=user_id, user_agent=user_agent, worker=worker
    )
    commands = [hset(keys.device(device.device_id), fields)]
    if user_id:
        mine = keys.of_user(user_id)
        commands.append(Command(("SADD", mine, device.device_id), mine))
    if worker:
        there = keys.of_worker(worker)
        commands.append(Command(("SADD", there, str(device)), there))
    return commands


def disconnected(
    keys: Keys, device: DeviceTransport, *, now_us: int, worker: str = ""
) -> list[Command]:
    """A device's connection is gone; one step."""
    fields = disconnected_fields(device.transport, iso(now_us))
    commands = [hset(keys.device(device.device_id), fields)]
    if worker:
        there = keys.of_worker(worker)
        commands.append(Command(("SREM", there, str(device)), there))
    return commands


def subscribed(
    keys: Keys,
    device: DeviceTransport,
    channel: Channel,
    *,
    filter_id: str = "",
    filter_text: str = "",
    until_s: int = 0,
) -> tuple[list[Command], list[Command]]:
    """A device subscribes; two steps, the first of them where it ends.

    A filter goes out with its subscriber: without it nobody looks for subscribers.

    Args:
        keys: how keys are named.
        device, channel: who, and to what.
        filter_id: of its filter; empty = none.
        filter_text: written as well; empty = the filter is there.
        until_s: when it ends; 0 = never.
    """
    key = keys.subscription(channel, filter_id)
    before: list[Command] = []
    if until_s:
        expiry = keys.expiry(device.device_id)
        before.append(Command(("ZADD", expiry, until_s, expiry_entry(keys, device, key)), expiry))
    after = [Command(("SADD", key, str(device)), key)]
    if filter_text:
        filters = keys.filters(channel)
        after.insert(0, Command(("HSET", filters, filter_id, filter_text), filters))
    return before, after


def subscribed_all(
    keys: Keys, wanted: Sequence[tuple[DeviceTransport, Channel, str]], until_s: int
) -> tuple[list[Command], list[Command]]:
    """``subscribed`` of many: device, channel and filter (empty = none) of each.

    Raises:
        ConfigError: one cannot be.
    """
    before: list[Command] = []
    after: list[Command] = []
    by_where: dict[str, tuple[str, str]] = {}
    written: set[tuple[bytes, str]] = set()
    begin, partitions, new = f"{keys.prefix}subscription:", keys.partitions, tuple.__new__
    for device, channel, where in wanted:
        device_id, transport = device
        if not device_id or not transport or "|" in transport:
            check_device(device)
        channel_key = checked_key(channel)
        place = crc32(channel_key.encode()) % partitions
        if where:
            known = by_where.get(where)
            if known is None:
                text = checked_filter(where)
                known = by_where[where] = text, filter_id_of(text)
            text, filter_id = known
            filters = keys.filters_of(channel_key)
            if (filters, filter_id) not in written:  # once for all of the page
                written.add((filters, filter_id))
                after.append(new(Command, (("HSET", filters, filter_id, text), filters)))
            key = f"{begin}{channel_key}:filter:{filter_id}:partition:{place}".encode()
        else:
            key = f"{begin}{channel_key}:partition:{place}".encode()
        if until_s:
            expiry = keys.expiry(device_id)
            before.append(
                Command(("ZADD", expiry, until_s, expiry_entry(keys, device, key)), expiry)
            )
        # Half of what the constructor of a named tuple takes.
        after.append(new(Command, (("SADD", key, f"{device_id}|{transport}"), key)))
    return before, after


def expiry_entry(keys: Keys, device: DeviceTransport, key: bytes) -> bytes:
    """How expiries name a subscription."""
    return shorten(b"%b %b" % (str(device).encode(), key.removeprefix(keys.prefix.encode())))


def parse_expiry(keys: Keys, entry: bytes) -> tuple[DeviceTransport, bytes]:
    """Whose subscription an entry of the expiries is, and its key."""
    device, _, key = lengthen(entry).rpartition(b" subscription:")
    begin = keys.prefix.encode() + b"subscription:"
    return DeviceTransport.parse(device.decode()), begin + key


def hset(key: bytes, fields: Mapping[str, str]) -> Command:
    """Some fields of a hash."""
    members = [part for pair in fields.items() for part in pair]
    return Command(("HSET", key, *members), key)


def checked_filter_id(filter_id: str) -> str:
    """An id that a filter can have.

    Raises:
        ConfigError: it cannot.
    """
    if not filter_id or ":" in filter_id:
        raise ConfigError(f"{filter_id[:40]!r} is no id of a filter: it has no colon")
    return filter_id


@lru_cache(maxsize=1024)
def checked_filter(text: str) -> str:
    """The canonical text of a filter.

    Raises:
        ConfigError: it is none.
    """
    try:
        return canonical(text)
    except ValueError as error:
        raise ConfigError(str(error), path="filter") from error
