"""Users and rules in Redis: a hash for each user, and one for its rules."""

from __future__ import annotations

import asyncio
import re
from typing import final

from perdure.auth_methods.stored import StoredUser, StoredUsers, rule_line
from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.method import MethodContext, MethodUnavailable, UnusableAnswer
from perdure.config.schema.auth_methods import RedisAuthConfig
from perdure.errors import ConfigError, PerdureError
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Argument, Command, Reply
from perdure.storage.redis.node import ClientSettings
from perdure.storage.redis.url import RedisAddress, parse_url

_TRUE = frozenset((b"1", b"true", b"yes"))
_NAMES = re.compile("%[cu]")


@final
class RedisMethod(StoredUsers):
    """Looks users up in Redis, over one connection to each node on which commands are pipelined.

    Args:
        settings: of the method.
        context: clock, threads, chance, log.
        address: of the server.
    """

    def __init__(
        self, settings: RedisAuthConfig, context: MethodContext, address: RedisAddress
    ) -> None:
        super().__init__(settings, context)
        self._settings = settings
        self._address = address
        self._client: RedisClient | None = None
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await super().close()
        if self._client is not None:
            await self._client.close()

    async def find_user(self, request: AuthRequest) -> StoredUser | None:
        """The hash of a user."""
        key = _key(self._settings.user_key, request)
        found = await self._ask(key, "HMGET", "password_hash", "is_superuser")
        assert isinstance(found, list)
        hashes, superuser = found
        if not isinstance(hashes, bytes):
            return None
        try:
            entries = tuple(hashes.decode("ascii").split())
        except UnicodeDecodeError:
            raise UnusableAnswer("a password_hash is no text") from None
        return StoredUser(entries, superuser in _TRUE)

    async def find_rules(self, request: AuthRequest) -> list[str] | None:
        """The hash of a user's rules."""
        settings = self._settings
        if not settings.acl_key:
            return None
        key = _key(settings.acl_key, request)
        count = await self._ask(key, "HLEN")
        if not isinstance(count, int) or count > settings.acl_rows_max:
            raise UnusableAnswer(f"{request.username!r} has more than acl_rows_max rules")
        found = await self._ask(key, "HGETALL")
        assert isinstance(found, list)
        try:
            texts = [item.decode() for item in found if isinstance(item, bytes)]
        except UnicodeDecodeError:
            raise UnusableAnswer("a rule is not UTF-8") from None
        return [
            rule_line(permission, topic)
            for topic, permission in zip(texts[::2], texts[1::2], strict=True)
        ]

    async def _ask(self, key: bytes, command: str, *arguments: Argument) -> Reply:
        try:
            client = self._client or await self._connect()
            return await client.call(Command((command, key, *arguments), key))
        except PerdureError as error:
            raise MethodUnavailable(error.message) from None

    async def _connect(self) -> RedisClient:
        """The client, which makes lost connections again by itself once there was one."""
        async with self._connecting:
            if self._client is None:
                timeout_s = self._settings.timeout_ms / 1000
                self._client = await RedisClient.connect(
                    self._address,
                    settings=ClientSettings(
                        connect_timeout_s=timeout_s, timeout_s=timeout_s, wait_s=timeout_s
                    ),
                )
            return self._client


def _key(pattern: str, request: AuthRequest) -> bytes:
    """A key with the client's names put in, each once: a name that holds ``%c`` stays as it is."""
    names = {"%c": request.client_id, "%u": request.username or ""}
    return _NAMES.sub(lambda found: names[found[0]], pattern).encode()


def open_method(settings: RedisAuthConfig, context: MethodContext) -> RedisMethod:
    """Make the method.

    Raises:
        ConfigError: the URL or a key cannot be used.
    """
    try:
        address = parse_url(settings.url)
    except ConfigError as error:
        raise ConfigError(error.message, path="auth.redis.url", hint=error.hint) from None
    for name in ("user_key", "acl_key"):
        pattern: str = getattr(settings, name)
        if (pattern or name == "user_key") and not _NAMES.search(pattern):
            raise ConfigError(
                "is the same for all users",
                path=f"auth.redis.{name}",
                hint="%u stands for the user name, %c for the client identifier",
            )
    return RedisMethod(settings, context, address)
