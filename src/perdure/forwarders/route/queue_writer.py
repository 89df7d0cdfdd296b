"""Appends what devices are owed to their queues on Redis, for whoever reads those.

The place in the log goes with each entry: a queue leaves out what it has taken (``NewEntry``).
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal, final

import msgspec

from perdure.errors import StorageError, TargetUnavailable
from perdure.model import Message
from perdure.storage.device_queue import DEFAULT_TTL_S, DeviceQueue, NewEntry
from perdure.storage.redis import RedisClient, durability, parse_url
from perdure.storage.redis.open import open_device_queue

BATCH: Final = 1000
"""Entries of one round trip."""
LIMIT: Final = 10_000
"""Entries that a queue holds; the oldest go (TBMQ's default)."""


@final
class QueueSettings(msgspec.Struct, frozen=True):
    """Where queues are.

    Attributes:
        url: of the Redis; empty = there are none.
        layout: how they are stored.
        prefix: of all keys; None = the layout's own.
        limit: entries of one queue.
    """

    url: str = ""
    layout: Literal["compact", "tbmq"] = "tbmq"
    prefix: str | None = None
    limit: int = LIMIT


def may_lose(settings: QueueSettings) -> list[str]:
    """Why the servers may lose entries that they have taken, a sentence for each reason. What is
    lost there is not written again: the job is past it.

    Raises:
        ConfigError: the settings cannot be used.
        StorageUnavailable: Redis does not answer.
    """

    async def look() -> list[str]:
        client = await RedisClient.connect(parse_url(settings.url))
        try:
            return (await durability.look(client))[0]
        finally:
            await client.close()

    return asyncio.run(look())


@final
class QueueWriter:
    """The queues of many devices; made for one task.

    Args:
        settings: where they are.

    Attributes:
        written: entries that were appended.
        repeated: entries that were there.

    Raises:
        ConfigError: the settings cannot be used.
        TargetUnavailable: Redis does not answer.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._entries: list[NewEntry] = []
        self._now_us = 0
        self.written = self.repeated = 0
        try:
            self._queue: DeviceQueue = self._runner.run(
                open_device_queue(settings.url, layout=settings.layout, prefix=settings.prefix)
            )
        except StorageError as error:
            self._runner.close()
            raise TargetUnavailable(error.message, hint=error.hint) from None

    def put(self, client_id: str, message: Message, *, granted: int, now_us: int) -> None:
        """Take one; offsets ascend for each client."""
        if 0 < message.expires_at_us <= now_us:
            return
        self._now_us = now_us
        self._entries.append(
            NewEntry(
                client_id,
                message,
                min(message.qos, granted),
                # [MQTT-3.3.1-9]: what is not sent because of a new subscription is not retained.
                position=message.offset,
                # Its own interval goes before the default, also where it is longer (TBMQ).
                forget_at_us=0 if message.expires_at_us else now_us + DEFAULT_TTL_S * 1_000_000,
            )
        )
        if len(self._entries) >= BATCH:
            self._flush()

    def close(self) -> None:
        """Append the rest, and disconnect.

        Raises:
            TargetUnavailable: it may not be there.
        """
        try:
            self._flush()
            self._runner.run(self._queue.close())
        finally:
            self._runner.close()

    def abandon(self) -> None:
        """Let go of everything after an error."""
        self._runner.close()

    def _flush(self) -> None:
        entries, self._entries = self._entries, []
        if not entries:
            return
        try:
            done = self._runner.run(
                self._queue.append(entries, now_us=self._now_us, limit=self._settings.limit)
            )
        except StorageError as error:
            raise TargetUnavailable(error.message, hint=error.hint) from None
        repeated = sum(each.repeated for each in done)
        self.repeated += repeated
        self.written += len(done) - repeated
