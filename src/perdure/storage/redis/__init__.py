"""Redis: a pipelined client, and device queues in two layouts.

``commands``, ``record`` and ``compact`` are pure: commands as values, replies read. ``connection``,
``node`` and ``client`` send them. hiredis, which packs and parses the protocol, is known to this
room alone. ``open_device_queue`` is where to begin.
"""

from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Library, Reply, Script
from perdure.storage.redis.node import ClientSettings, Code
from perdure.storage.redis.open import open_device_queue
from perdure.storage.redis.url import RedisAddress, parse_url

__all__ = [
    "ClientSettings",
    "Code",
    "Command",
    "Library",
    "RedisAddress",
    "RedisClient",
    "Reply",
    "Script",
    "open_device_queue",
    "parse_url",
]
