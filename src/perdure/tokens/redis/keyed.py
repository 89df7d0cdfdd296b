"""A key for each token, which Redis expires: the seed's baseline and its iterations 1 and 2.

=========  ==============================  ==========================================
layout     key                             value
=========  ==============================  ==========================================
``json``   ``session:`` and 40 hex digits  JSON, by SETEX
``packed`` ``session:`` and 20 bytes       MessagePack, by SETEX
``hash``   ``session:`` and 20 bytes       a hash with ``i`` and ``x``, and EXPIRE
=========  ==============================  ==========================================
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Reply, check
from perdure.tokens.store import TokenStore
from perdure.tokens.token import Token
from perdure.tokens.values import fields, of_fields

LONG_NAMES: Final = ("identity_id", "expires_at", "client_id", "rights")
SHORT_NAMES: Final = ("i", "x", "c", "r")


class KeyedTokens(TokenStore):
    """The store; what is kept under a key is the subclasses'.

    Args:
        client: a server or a cluster.
        prefix: of all keys.
    """

    def __init__(self, client: RedisClient, prefix: bytes) -> None:
        self._client = client
        self._prefix = prefix

    async def _save(self, tokens: Sequence[Token], now_s: int) -> None:
        commands = [command for token in tokens for command in self._put(token, now_s)]
        for reply in await self._client.execute(commands):
            check(reply)

    async def find(self, token_id: bytes, now_s: int) -> Token | None:
        token = self._read(token_id, await self._client.call(self._get(self._key(token_id))))
        return token if token is not None and token.holds(now_s) else None

    async def revoke(self, token_id: bytes) -> bool:
        key = self._key(token_id)
        return bool(await self._client.call(Command(("DEL", key), key)))

    async def maintain(self, now_s: int) -> int:
        return 0

    async def count(self) -> int:
        found: set[bytes] = set()
        async for page in self._client.scan(literal(self._prefix) + b"*"):
            found.update(page)
        return len(found)

    async def close(self) -> None:
        await self._client.close()

    def _key(self, token_id: bytes) -> bytes:
        return self._prefix + token_id

    @abstractmethod
    def _put(self, token: Token, now_s: int) -> list[Command]:
        """The commands that save a token."""

    def _get(self, key: bytes) -> Command:
        """The command that reads one."""
        return Command(("GET", key), key)

    @abstractmethod
    def _read(self, token_id: bytes, reply: Reply) -> Token | None:
        """What it has answered."""


@final
class JsonTokens(KeyedTokens):
    """Layout ``json``."""

    def _key(self, token_id: bytes) -> bytes:
        return self._prefix + token_id.hex().encode()

    def _put(self, token: Token, now_s: int) -> list[Command]:
        key = self._key(token.id)
        value = msgspec.json.encode(fields(token, LONG_NAMES))
        return [Command(("SETEX", key, token.expires_at - now_s, value), key)]

    def _read(self, token_id: bytes, reply: Reply) -> Token | None:
        if not isinstance(reply, bytes):
            return None
        try:
            found = msgspec.json.decode(reply)
        except ValueError as error:
            raise StorageCorrupt(f"a value of a token is no JSON: {error}") from None
        return of_fields(token_id, found, LONG_NAMES)


@final
class PackedTokens(KeyedTokens):
    """Layout ``packed``."""

    def _put(self, token: Token, now_s: int) -> list[Command]:
        key = self._key(token.id)
        value = msgspec.msgpack.encode(fields(token, SHORT_NAMES))
        return [Command(("SETEX", key, token.expires_at - now_s, value), key)]

    def _read(self, token_id: bytes, reply: Reply) -> Token | None:
        return None if not isinstance(reply, bytes) else unpack(token_id, reply)


@final
class HashTokens(KeyedTokens):
    """Layout ``hash``."""

    def _put(self, token: Token, now_s: int) -> list[Command]:
        key = self._key(token.id)
        members: list[bytes | str | int] = []
        for name, value in fields(token, SHORT_NAMES).items():
            members += (name, value if isinstance(value, str | int) else msgspec.json.encode(value))
        # What an earlier token of this identifier said beside that must not stay.
        return [
            Command(("MULTI",), key),
            Command(("DEL", key), key),
            Command(("HSET", key, *members), key),
            Command(("EXPIRE", key, token.expires_at - now_s), key),
            Command(("EXEC",), key),
        ]

    async def _save(self, tokens: Sequence[Token], now_s: int) -> None:
        if not self._client.address.cluster:
            await super()._save(tokens, now_s)
            return
        for token in tokens:
            for reply in await self._client.transaction(self._put(token, now_s)[1:-1]):
                check(reply)

    def _get(self, key: bytes) -> Command:
        return Command(("HGETALL", key), key)

    def _read(self, token_id: bytes, reply: Reply) -> Token | None:
        if not isinstance(reply, list) or not reply:
            return None
        try:
            texts = [item.decode() for item in reply if isinstance(item, bytes)]
            found: dict[str, object] = dict(zip(texts[::2], texts[1::2], strict=True))
            if "r" in found:
                found["r"] = msgspec.json.decode(str(found["r"]))
        except ValueError as error:
            raise StorageCorrupt(f"a value of a token cannot be read: {error}") from None
        return of_fields(token_id, found, SHORT_NAMES)


def literal(text: bytes) -> bytes:
    """A pattern of SCAN that matches a text alone."""
    return re.sub(rb"([][*?\\])", rb"\\\1", text)


def unpack(token_id: bytes, data: bytes) -> Token:
    """The token that the seed's MessagePack is.

    Raises:
        StorageCorrupt: it is none.
    """
    try:
        found = msgspec.msgpack.decode(data)
    except ValueError as error:
        raise StorageCorrupt(f"a value of a token is no MessagePack: {error}") from None
    return of_fields(token_id, found, SHORT_NAMES)
