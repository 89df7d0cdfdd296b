"""Hashes of many tokens with a sorted set of expiries beside each: the seed's iterations 3 and 4.

A partition is named by the first digits of the identifier in hexadecimal: two digits make 256 of
them, four 65,536. The rest of the identifier is the field. Redis does not expire fields, so
``maintain`` removes them, oldest first. For one server: a partition's two keys are in different
slots of a cluster, as the seed names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Script, check
from perdure.tokens.redis.batches import count_fields, in_batches, numbers
from perdure.tokens.redis.keyed import SHORT_NAMES, unpack
from perdure.tokens.store import TokenStore
from perdure.tokens.token import Token
from perdure.tokens.values import fields

_SWEPT_AT_ONCE: Final = 500

# By score, and again in the script: a token may have been saved anew since it was looked at.
SWEEP: Final = Script(
    """
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #gone > 0 then
  redis.call('HDEL', KEYS[1], unpack(gone))
  redis.call('ZREM', KEYS[2], unpack(gone))
end
return #gone
"""
)


@final
class PartitionedTokens(TokenStore):
    """The store.

    Args:
        client: one server.
        prefix: of all keys.
        digits: of an identifier that name its partition, 2 or 4.
    """

    def __init__(self, client: RedisClient, prefix: bytes, *, digits: int) -> None:
        self._client = client
        self._prefix = prefix
        self._digits = digits

    async def _save(self, tokens: Sequence[Token], now_s: int) -> None:
        commands: list[Command] = []
        for token in tokens:
            data, expiry, field = self._place(token.id)
            value = msgspec.msgpack.encode(fields(token, SHORT_NAMES))
            commands += (
                Command(("MULTI",)),
                Command(("HSET", data, field, value)),
                Command(("ZADD", expiry, token.expires_at, field)),
                Command(("EXEC",)),
            )
        for reply in await self._client.execute(commands):
            check(reply)

    async def find(self, token_id: bytes, now_s: int) -> Token | None:
        data, _, field = self._place(token_id)
        reply = await self._client.call(Command(("HGET", data, field)))
        if reply is None:
            return None
        if not isinstance(reply, bytes):
            raise StorageCorrupt("a value of a token is no text")
        token = unpack(token_id, reply)
        return token if token.holds(now_s) else None

    async def revoke(self, token_id: bytes) -> bool:
        data, expiry, field = self._place(token_id)
        replies = await self._client.transaction(
            [Command(("HDEL", data, field)), Command(("ZREM", expiry, field))]
        )
        return bool(check(replies[0]))

    async def maintain(self, now_s: int) -> int:
        removed = 0
        todo = [self._keys(number) for number in range(16**self._digits)]
        while todo:
            again: list[tuple[bytes, bytes]] = []
            for batch in in_batches(todo):
                counts = await numbers(
                    self._client,
                    [
                        Command(("EVALSHA", SWEEP.sha, 2, data, expiry, now_s, _SWEPT_AT_ONCE))
                        for data, expiry in batch
                    ],
                )
                removed += sum(counts)
                again += [
                    keys
                    for keys, count in zip(batch, counts, strict=True)
                    if count == _SWEPT_AT_ONCE
                ]
            todo = again
        return removed

    async def count(self) -> int:
        everything = range(16**self._digits)
        return await count_fields(self._client, (self._keys(number)[0] for number in everything))

    async def close(self) -> None:
        await self._client.close()

    def _keys(self, number: int) -> tuple[bytes, bytes]:
        """The hash and the sorted set of a partition."""
        digits = b"%0*x" % (self._digits, number)
        return self._prefix + b"data:" + digits, self._prefix + b"expiry:" + digits

    def _place(self, token_id: bytes) -> tuple[bytes, bytes, bytes]:
        """The keys of a token, and its field."""
        size = self._digits // 2
        number = int.from_bytes(token_id[:size], "big")
        return *self._keys(number), token_id[size:]
