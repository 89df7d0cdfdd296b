"""The devices of other transports as the target: each transport has a Redis Stream.

A message whose topic is a channel (``registry.topics``) is a change. The registry says which
devices want it, and each transport's stream gets an entry with them, for its workers to read as a
consumer group. Devices of our own transport are left out: they subscribe at the broker.

Sketch for one message: two round trips to find the devices, of many messages at the same time, and
one for each transport and batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, final

import msgspec

from perdure.config.schema import ForwarderConfig
from perdure.config.schema.forwarders import RegistryForwarderConfig
from perdure.content.document import content_of
from perdure.errors import ConfigError, StorageError, TargetUnavailable
from perdure.forwarders.mapping import payload_of, user_properties
from perdure.forwarders.output import Context, Output, Refusal
from perdure.model import Cursor, Message
from perdure.registry.channel import Channel
from perdure.registry.registry import Registry
from perdure.registry.topics import channel_of
from perdure.storage.redis.commands import Argument, Command

RESOLVED_AT_ONCE: Final = 64
"""Messages whose devices are asked for at the same time."""

DEVICES_PER_ENTRY: Final = 1_000
"""A change that more devices of a transport want has several entries, one after the other."""

SCRIPT_BYTES: Final = 4 << 20
"""Arguments of one script, about: Redis does nothing else meanwhile."""

_ENTRIES_OF_ONE_BITS: Final = 20
"""Bits of an entry's identifier that count the entries of one message."""

FIELDS: Final = (
    "topic", "channel", "devices", "payload", "qos", "retain", "publisher", "properties",
)  # fmt: skip
"""Of an entry."""

# One script, so that the entries of a message are there together or not at all. A message of which
# the stream has entries was written by an attempt whose answer was lost: who wants it may have
# changed since, so it is passed over whole and not entry by entry.
_SCRIPT: Final = """
local trim, count = tonumber(ARGV[1]), 0
local ms, seq = -1, -1
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      ms, seq = string.match(info[i + 1], '(%d+)-(%d+)')
      ms, seq = tonumber(ms), math.floor(tonumber(seq) / 1048576)
    end
  end
end
local names = {}
for name in string.gmatch(ARGV[2], '[^,]+') do names[#names + 1] = name end
for i = 3, #ARGV, #names + 1 do
  local own_ms, own_seq = string.match(ARGV[i], '(%d+)-(%d+)')
  own_ms, own_seq = tonumber(own_ms), math.floor(tonumber(own_seq) / 1048576)
  if own_ms > ms or (own_ms == ms and own_seq > seq) then
    local entry = {'XADD', KEYS[1]}
    if trim > 0 then
      entry[3], entry[4], entry[5] = 'MAXLEN', '~', ARGV[1]
    end
    entry[#entry + 1] = ARGV[i]
    for j, name in ipairs(names) do
      entry[#entry + 1], entry[#entry + 2] = name, ARGV[i + j]
    end
    redis.call(unpack(entry))
    count = count + 1
  end
end
return count
"""


def entry_id(offset: int, number: int) -> str:
    """The identifier of an entry: milliseconds, then microseconds and its number in the message."""
    return f"{offset // 1000}-{(offset % 1000 << _ENTRIES_OF_ONE_BITS) + number}"


@final
class Change(NamedTuple):
    """A message and who wants it.

    Attributes:
        message: in the log.
        channel: its topic as a channel.
        devices: by transport.
        refusal: why the registry cannot say; empty = it has.
    """

    message: Message
    channel: Channel
    devices: dict[str, list[str]]
    refusal: str = ""


@final
class RegistryOutput(Output):
    """Adds entries to the streams of transports.

    Args:
        settings, context: of the forwarder.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(self, settings: RegistryForwarderConfig, context: Context) -> None:
        if not settings.url:
            raise ConfigError("needs the URL of a registry", path=f"{context.setting}.url")
        if "{transport}" not in settings.key:
            raise ConfigError(
                "needs {transport} in the key of the streams", path=f"{context.setting}.key"
            )
        self._settings = settings
        self._context = context
        self._skip = frozenset(settings.skip)
        self._told: set[tuple[str, str]] = set()
        self._registry: Registry | None = None

    async def open(self, cursor: Cursor) -> int:
        """Connect."""
        settings = self._settings
        try:
            self._registry = await Registry.open(
                settings.url, partitions=settings.partitions, prefix=settings.prefix
            )
        except StorageError as error:
            raise TargetUnavailable(error.message, hint=error.hint) from None
        return 0

    async def write(self, messages: Sequence[Message]) -> list[Refusal]:
        """Find who wants them, and add them to the streams in their order."""
        assert self._registry is not None
        registry = self._registry
        changes: list[Change] = []
        self.passed_over = 0
        try:
            for first in range(0, len(messages), RESOLVED_AT_ONCE):
                page = messages[first : first + RESOLVED_AT_ONCE]
                found = await asyncio.gather(*(self._resolve(registry, each) for each in page))
                changes += [each for each in found if each is not None]
            await self._add(registry, changes)
        except StorageError as error:
            raise TargetUnavailable(error.message, hint=error.hint) from None
        refused = [Refusal(each.message, each.refusal) for each in changes if each.refusal]
        wanted = sum(bool(each.devices) for each in changes)
        self.passed_over = len(messages) - wanted - len(refused)
        return refused

    async def close(self) -> None:
        """Close the connections."""
        if self._registry is not None:
            await self._registry.close()
            self._registry = None

    async def _resolve(self, registry: Registry, message: Message) -> Change | None:
        """Who wants a message; None = its topic is no channel."""
        channel = channel_of(message.topic)
        if channel is None:
            return None
        try:
            wanted = await registry.wanting_content(channel, content_of(message))
        except ConfigError as error:
            return Change(message, channel, {}, error.message)
        for each in wanted.unreadable:
            if each not in self._told:
                self._told.add(each)
                self._context.log.warning(
                    "forwarder.filter_unreadable", channel=each[0], filter=each[1]
                )
        devices = wanted.by_transport()
        for transport in self._skip:
            devices.pop(transport, None)
        return Change(message, channel, devices)

    async def _add(self, registry: Registry, changes: Sequence[Change]) -> None:
        transports = sorted({name for change in changes for name in change.devices})
        await asyncio.gather(*(self._add_to(registry, name, changes) for name in transports))

    async def _add_to(self, registry: Registry, transport: str, changes: Sequence[Change]) -> None:
        """Add to one stream, in pieces that end with a message."""
        arguments: list[Argument] = []
        size = 0
        for change in changes:
            for entry in self._entries(change, change.devices.get(transport, ())):
                arguments += entry
                size += sum(len(part) for part in entry if isinstance(part, str | bytes))
            if size > SCRIPT_BYTES:
                await self._run(registry, transport, arguments)
                arguments, size = [], 0
        if arguments:
            await self._run(registry, transport, arguments)

    async def _run(self, registry: Registry, transport: str, arguments: list[Argument]) -> None:
        key = self._settings.key.replace("{transport}", transport).encode()
        head: tuple[Argument, ...] = (self._settings.length_max, ",".join(FIELDS))
        await registry.client.call(Command(("EVAL", _SCRIPT, 1, key, *head, *arguments), key))

    def _entries(self, change: Change, devices: Sequence[str]) -> Iterator[list[Argument]]:
        """Identifier and fields of the entries of one message."""
        message = change.message
        for number, first in enumerate(range(0, len(devices), DEVICES_PER_ENTRY)):
            yield [
                entry_id(message.offset, number),
                message.topic,
                change.channel.key,
                msgspec.json.encode(devices[first : first + DEVICES_PER_ENTRY]),
                payload_of(message, self._settings.payload),
                message.qos,
                int(message.retain),
                message.publisher,
                msgspec.json.encode(user_properties(message)),
            ]


def open_output(settings: ForwarderConfig, context: Context) -> RegistryOutput:
    """Make the output."""
    assert isinstance(settings, RegistryForwarderConfig)
    return RegistryOutput(settings, context)
