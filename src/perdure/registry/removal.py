"""Subscriptions are taken out, many at once: with their ends, and the filters that go with them.

Each step goes out when the one before it is answered, so that what is cut off in the middle
misleads nobody and can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from perdure.registry import writes
from perdure.registry.channel import DeviceTransport, Keys
from perdure.storage.redis import Command, Reply

TAKEN_OUT_AT_ONCE: Final = 500
"""Subscriptions whose commands go out together."""


class Place(Protocol):
    """Where subscriptions are: a registry."""

    @property
    def keys(self) -> Keys:
        """How keys are named."""

    async def write(self, commands: Sequence[Command]) -> list[bytes | int | list[Reply] | None]:
        """Send commands together; their replies."""


async def take_out_all(place: Place, ended: Sequence[tuple[DeviceTransport, bytes]]) -> int:
    """Take out subscriptions: devices, and the keys that they are in.

    Returns:
        How many there were.
    """
    count = 0
    for first in range(0, len(ended), TAKEN_OUT_AT_ONCE):
        count += await _take_out(place, ended[first : first + TAKEN_OUT_AT_ONCE])
    return count


async def _take_out(place: Place, ended: Sequence[tuple[DeviceTransport, bytes]]) -> int:
    keys, commands = place.keys, list[Command]()
    for device, key in ended:
        expiry = keys.expiry(device.device_id)
        commands += (
            Command(("SREM", key, str(device)), key),
            Command(("ZREM", expiry, writes.expiry_entry(keys, device, key)), expiry),
            Command(("SCARD", key), key),
        )
    replies = await place.write(commands)
    emptied = {key for (_, key), left in zip(ended, replies[2::3], strict=True) if left == 0}
    await _drop_unused(place, sorted(emptied))
    return sum(bool(removed) for removed in replies[::3])


async def _drop_unused(place: Place, emptied: Iterable[bytes]) -> None:
    """Forget filters without subscribers. Somebody may subscribe meanwhile: then they stay."""
    keys, filters = place.keys, list[tuple[bytes, bytes, str]]()
    for key in emptied:
        channel_key, filter_id, _ = keys.parse_subscription(key)
        if filter_id:
            filters.append((key, keys.filters_of(channel_key), filter_id))
    texts = await place.write(
        [Command(("HGET", where, filter_id), where) for _, where, filter_id in filters]
    )
    known = [
        (key, where, filter_id, text)
        for (key, where, filter_id), text in zip(filters, texts, strict=True)
        if isinstance(text, bytes)
    ]
    await place.write([Command(("HDEL", where, name), where) for _, where, name, _ in known])
    sizes = await place.write([Command(("SCARD", key), key) for key, _, _, _ in known])
    await place.write(
        [
            Command(("HSETNX", where, filter_id, text), where)
            for (_, where, filter_id, text), size in zip(known, sizes, strict=True)
            if size
        ]
    )
