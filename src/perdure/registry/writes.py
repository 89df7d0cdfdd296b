"""What is written for a device: commands, in the steps in which they go out. Pure.

Commands of one step may go out together, for many devices at once; a step begins when the one
before it is answered, so that what is cut off in the middle misleads nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.content import canonical
from perdure.errors import ConfigError
from perdure.registry.channel import Channel, DeviceTransport, Keys, check_device
from perdure.registry.device import connected_fields, disconnected_fields, iso
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
    """A device subscribes; two steps.

    Args:
        keys: how keys are named.
        device, channel: who, and to what.
        filter_id: of its filter; empty = none.
        filter_text: written as well; empty = the filter is there.
        until_s: when it ends; 0 = never.
    """
    key = keys.subscription(channel, filter_id)
    noted = keys.of_device(device.device_id)
    own = note(device.transport, channel.key, filter_id)
    before = [Command(("HSET", noted, own, ""), noted)]
    if filter_text:
        filters = keys.filters(channel)
        before.append(Command(("HSET", filters, filter_id, filter_text), filters))
    if until_s:
        expiry = keys.expiry(device.device_id)
        entry = b"%b %b" % (str(device).encode(), key)
        before.append(Command(("ZADD", expiry, until_s, entry), expiry))
    return before, [Command(("SADD", key, str(device)), key)]


def note(transport: str, channel_key: str, filter_id: str) -> str:
    """How a device's own hash names a subscription."""
    within = f":filter:{filter_id}" if filter_id else ""
    return f"{transport}|{channel_key}{within}"


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


def checked_filter(text: str) -> str:
    """The canonical text of a filter.

    Raises:
        ConfigError: it is none.
    """
    try:
        return canonical(text)
    except ValueError as error:
        raise ConfigError(str(error), path="filter") from error
