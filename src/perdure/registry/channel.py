"""Channels, devices and their keys, as nexxus-redis names them; pure functions of their arguments.

::

    key                                                    type  holds
    nxx:subscription:CHANNEL:partition:P                   SET   device|transport
    nxx:subscription:CHANNEL:filter:FILTER:partition:P     SET   device|transport
    nxx:filters:CHANNEL                                    HASH  filter id -> filter (JSON)
    nxx:device:DEVICE                                      HASH  userId, transport, userAgent,
                                                                 connectedAt, and ours (``device``)
    nxx:perdure:user:USER                                  SET   devices of a user
    nxx:perdure:worker:WORKER                              SET   device|transport: who is connected
                                                                 to a worker
    nxx:perdure:expiry:S                                   ZSET  device|transport subscription key
                                                                 (``packing``), by Unix time
    nxx:perdure:mirror:WORKER:B                            HASH  what a broker has written of its
                                                                 clients (``notes``)

    CHANNEL   app:APP[:user:USER]:model:MODEL[:id:ID]
    P         CRC-32 of CHANNEL modulo the number of partitions

The first four are the seed's, and all that other workers read or write; a subscription without an
end is in them alone. The others are ours: they answer what those cannot.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, final

from perdure.errors import ConfigError

PARTITIONS: Final = 1024
"""The seed's default; 1 where there is one server."""

PARTITIONS_MAX: Final = 1 << 20
PART_CHARS_MAX: Final = 512
"""Characters of one part of a channel."""

EXPIRY_SHARDS: Final = 16_384
"""Sorted sets that expiries are spread over: small enough, up to 2 million, to be kept packed
(``zset-max-listpack-entries``, 128), and in a cluster on all nodes."""


@final
class Channel(NamedTuple):
    """What a subscription is about.

    Attributes:
        app_id: application.
        model: type of the objects, such as ``task``.
        user_id: those of one user; empty = of all.
        model_id: one object; empty = all.
    """

    app_id: str
    model: str
    user_id: str = ""
    model_id: str = ""

    @property
    def key(self) -> str:
        """Its name in keys."""
        app_id, model, user_id, model_id = self
        user = f":user:{user_id}" if user_id else ""
        one = f":id:{model_id}" if model_id else ""
        return f"app:{app_id}{user}:model:{model}{one}"

    @classmethod
    def parse(cls, key: str) -> Channel:
        """The channel that a name in keys is.

        Raises:
            ConfigError: it is none.
        """
        parts = key.split(":")
        named = dict(zip(parts[::2], parts[1::2], strict=False))
        channel = cls(
            named.get("app", ""),
            named.get("model", ""),
            named.get("user", ""),
            named.get("id", ""),
        )
        if channel.key != key:
            raise ConfigError(
                f"{key[:80]!r} is no channel",
                hint="app:APP[:user:USER]:model:MODEL[:id:ID]",
            )
        return check_channel(channel)


def checked_key(channel: Channel) -> str:
    """The key of a channel whose name means it alone.

    Raises:
        ConfigError: a part is missing, too long, or has a colon in it.
    """
    app_id, model, user_id, model_id = channel
    if user_id:
        colons, key = 5, f"app:{app_id}:user:{user_id}:model:{model}"
    else:
        colons, key = 3, f"app:{app_id}:model:{model}"
    if model_id:
        colons, key = colons + 2, f"{key}:id:{model_id}"
    if not app_id or not model or len(key) > PART_CHARS_MAX or key.count(":") != colons:
        check_channel(channel)
    return key


def check_channel(channel: Channel) -> Channel:
    """A channel whose name means it alone.

    Raises:
        ConfigError: a part is missing, too long, or has a colon in it.
    """
    for name, part, must in (
        ("application", channel.app_id, True),
        ("model", channel.model, True),
        ("user", channel.user_id, False),
        ("object", channel.model_id, False),
    ):
        if (must and not part) or len(part) > PART_CHARS_MAX or ":" in part:
            raise ConfigError(
                f"the {name} of a channel cannot be {part[:40]!r}",
                hint=f"1 to {PART_CHARS_MAX} characters without a colon",
            )
    return channel


def patterns(change: Channel) -> list[Channel]:
    """The channels whose subscribers want to hear of a change, in the seed's order."""
    found: list[Channel] = []
    for user_id in dict.fromkeys(("", change.user_id)):
        found += [
            Channel(change.app_id, change.model, user_id, model_id)
            for model_id in dict.fromkeys(("", change.model_id))
        ]
    return found


@lru_cache(maxsize=1024)
def filter_id_of(text: str) -> str:
    """The id of a filter, from its canonical text: the same for all who want the same."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


@final
class DeviceTransport(NamedTuple):
    """A device by one of its transports: ``device-123|websockets-transport``."""

    device_id: str
    transport: str

    def __str__(self) -> str:
        return f"{self.device_id}|{self.transport}"

    @classmethod
    def parse(cls, text: str) -> DeviceTransport:
        """The device that a member of a set is.

        Raises:
            ConfigError: it is none.
        """
        device_id, bar, transport = text.rpartition("|")
        if not bar or not device_id or not transport:
            raise ConfigError(f"{text[:80]!r} is no device", hint="device|transport")
        return cls(device_id, transport)


def check_device(device: DeviceTransport) -> DeviceTransport:
    """A device that can be a member of a set.

    Raises:
        ConfigError: an identifier or a transport that cannot be one.
    """
    if not device.device_id or not device.transport or "|" in device.transport:
        raise ConfigError(
            f"{str(device)[:80]!r} is no device",
            hint="an identifier, and a transport without a bar",
        )
    return device


@final
class Keys:
    """The names of all keys.

    Args:
        partitions: how many partitions there are; all workers say the same.
        prefix: the seed's is ``nxx:``.

    Raises:
        ConfigError: there cannot be so many partitions.
    """

    __slots__ = ("partitions", "prefix")

    def __init__(self, partitions: int = PARTITIONS, prefix: str = "nxx:") -> None:
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ConfigError(f"there are 1 to {PARTITIONS_MAX} partitions", path="partitions")
        self.partitions = partitions
        self.prefix = prefix

    def partition(self, channel_key: str) -> int:
        """The partition of a channel."""
        return zlib.crc32(channel_key.encode()) % self.partitions

    def subscription(self, channel: Channel, filter_id: str = "") -> bytes:
        """Who subscribes to a channel; with a filter, if one is named."""
        key = channel.key
        return self.subscription_in(key, filter_id, self.partition(key))

    def subscription_in(self, channel_key: str, filter_id: str, partition: int) -> bytes:
        """Who subscribes to a channel in one partition."""
        within = f":filter:{filter_id}" if filter_id else ""
        return f"{self.prefix}subscription:{channel_key}{within}:partition:{partition}".encode()

    def filters(self, channel: Channel) -> bytes:
        """The filters of a channel."""
        return self.filters_of(channel.key)

    def filters_of(self, channel_key: str) -> bytes:
        """The filters of a channel, by its name in keys."""
        return f"{self.prefix}filters:{channel_key}".encode()

    def device(self, device_id: str) -> bytes:
        """What is known of a device."""
        return f"{self.prefix}device:{device_id}".encode()

    def of_user(self, user_id: str) -> bytes:
        """The devices of a user."""
        return f"{self.prefix}perdure:user:{user_id}".encode()

    def of_worker(self, worker: str) -> bytes:
        """Who is connected to a worker."""
        return f"{self.prefix}perdure:worker:{worker}".encode()

    def expiry(self, device_id: str) -> bytes:
        """When subscriptions of a device end."""
        return self.expiry_shard(zlib.crc32(device_id.encode()) % EXPIRY_SHARDS)

    def expiry_shard(self, shard: int) -> bytes:
        """When subscriptions of some devices end."""
        return f"{self.prefix}perdure:expiry:{shard}".encode()

    def parse_subscription(self, key: bytes) -> tuple[str, str, int]:
        """Channel key, filter id (empty = none) and partition of a subscription's key.

        Raises:
            ConfigError: it is none.
        """
        text = key.decode(errors="replace")
        begin = f"{self.prefix}subscription:"
        rest, mark, partition = text.removeprefix(begin).rpartition(":partition:")
        if not text.startswith(begin) or not mark or not partition.isdecimal():
            raise ConfigError(f"{text[:80]!r} is no subscription of a registry")
        channel_key, _, filter_id = rest.partition(":filter:")
        return channel_key, filter_id, int(partition)
