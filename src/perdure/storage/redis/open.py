"""From a URL to device queues."""

from __future__ import annotations

from typing import Literal

from perdure.storage.device_queue import DeviceQueue
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.compact import DEFAULT_PREFIX, CompactLayout
from perdure.storage.redis.compact_queue import CompactDeviceQueue
from perdure.storage.redis.node import ClientSettings
from perdure.storage.redis.url import parse_url


async def open_device_queue(
    url: str,
    *,
    layout: Literal["compact"] = "compact",
    prefix: str | None = None,
    settings: ClientSettings | None = None,
) -> DeviceQueue:
    """The device queues on a Redis server or cluster.

    Args:
        url: see ``url``.
        layout: how they are stored.
        prefix: of all keys; None = the layout's own.
        settings: how patient the client is.

    Raises:
        ConfigError: the URL or the login is wrong, or the server is too old.
        StorageUnavailable: nobody is there.
    """
    chosen = CompactLayout(DEFAULT_PREFIX if prefix is None else prefix)
    client = await RedisClient.connect(parse_url(url), settings=settings, code=chosen.code)
    return CompactDeviceQueue(client, chosen)
