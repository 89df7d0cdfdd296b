"""A Redis Stream as the target: an entry for each message, once.

The identifier of an entry is made of the offset: Redis itself refuses what is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.config.schema import ForwarderConfig
from perdure.config.schema.forwarders import RedisForwarderConfig
from perdure.errors import ConfigError, StorageError, TargetUnavailable
from perdure.forwarders.mapping import TopicMap, payload_of, user_properties
from perdure.forwarders.output import Context, Output, Refusal
from perdure.model import Cursor, Message
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Argument, Command
from perdure.storage.redis.node import ClientSettings
from perdure.storage.redis.url import parse_url

# One script, so that a batch is there whole or not at all, and in order. An entry that is not above
# the last one was written by an attempt whose answer was lost.
_SCRIPT: Final = """
local trim, count = tonumber(ARGV[1]), 0
for i = 2, #ARGV, 7 do
  local entry = {'XADD', KEYS[1]}
  if trim > 0 then
    entry[3], entry[4], entry[5] = 'MAXLEN', '~', ARGV[1]
  end
  entry[#entry + 1] = ARGV[i]
  for j, name in ipairs({'topic', 'payload', 'qos', 'retain', 'publisher', 'properties'}) do
    entry[#entry + 1], entry[#entry + 2] = name, ARGV[i + j]
  end
  local added = redis.pcall(unpack(entry))
  if type(added) == 'table' and added.err then
    if not string.find(added.err, 'equal or smaller', 1, true) then
      return added
    end
  else
    count = count + 1
  end
end
return count
"""


def entry_id(offset: int) -> str:
    """The identifier of an entry: an offset is microseconds, an identifier milliseconds first."""
    return f"{offset // 1000}-{offset % 1000}"


@final
class RedisOutput(Output):
    """Adds entries to a stream.

    Args:
        settings, context: of the forwarder.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(self, settings: RedisForwarderConfig, context: Context) -> None:
        setting = context.setting
        if not settings.url:
            raise ConfigError("needs the URL of a Redis", path=f"{setting}.url")
        self._address = parse_url(settings.url)
        self._settings = settings
        self._key = settings.key.replace("{name}", context.name).encode()
        self._topic = TopicMap(settings.strip, settings.topic, setting=f"{setting}.topic")
        self._client: RedisClient | None = None

    async def open(self, cursor: Cursor) -> int:
        """Connect."""
        try:
            self._client = await RedisClient.connect(
                self._address, settings=ClientSettings(timeout_s=self._settings.timeout_s)
            )
        except StorageError as error:
            raise TargetUnavailable(error.message, hint=error.hint) from None
        return 0

    async def write(self, messages: Sequence[Message]) -> list[Refusal]:
        """Add a batch."""
        assert self._client is not None
        arguments: list[Argument] = [self._settings.length_max]
        for each in messages:
            arguments += [
                entry_id(each.offset),
                self._topic(each.topic),
                payload_of(each, self._settings.payload),
                each.qos,
                int(each.retain),
                each.publisher,
                msgspec.json.encode(user_properties(each)),
            ]
        command = Command(("EVAL", _SCRIPT, 1, self._key, *arguments), self._key)
        try:
            await self._client.call(command)
        except StorageError as error:
            raise TargetUnavailable(error.message, hint=error.hint) from None
        return []

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None


def open_output(settings: ForwarderConfig, context: Context) -> RedisOutput:
    """Make the output."""
    assert isinstance(settings, RedisForwarderConfig)
    return RedisOutput(settings, context)
