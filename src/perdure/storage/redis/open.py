"""From a URL to device queues."""

from __future__ import annotations

from typing import Literal

from perdure.storage.device_queue import DeviceQueue
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.compact import DEFAULT_PREFIX, CompactLayout
from perdure.storage.redis.compact_queue import CompactDeviceQueue
from perdure.storage.redis.node import ClientSettings
from perdure.storage.redis.tbmq import TbmqLayout
from perdure.storage.redis.tbmq_queue import TbmqDeviceQueue
from perdure.storage.redis.url import parse_url


async def open_device_queue(
    url: str,
    *,
    layout: Literal["compact", "tbmq"] = "compact",
    prefix: str | None = None,
    settings: ClientSettings | None = None,
) -> DeviceQueue:
    """The device queues on a Redis server or cluster.

    Args:
        url: see ``url``.
        layout: how they are stored: in our own way, or as TBMQ 2.x does.
        prefix: of all keys; None = the layout's own (``perdure:``, or none as TBMQ).
        settings: how patient the client is.

    Raises:
        ConfigError: the URL or the login is wrong, or the server is too old.
        StorageUnavailable: nobody is there.
    """
    address = parse_url(url)
    if layout == "tbmq":
        tbmq = TbmqLayout(prefix or "")
        client = await RedisClient.connect(address, settings=settings, code=tbmq.code)
        return TbmqDeviceQueue(client, tbmq)
    compact = CompactLayout(DEFAULT_PREFIX if prefix is None else prefix)
    client = await RedisClient.connect(address, settings=settings, code=compact.code)
    return CompactDeviceQueue(client, compact)
