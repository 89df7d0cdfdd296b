"""Opaque tokens of a token store (``perdure.tokens``) as credentials.

A token that is revoked ends its client's connection at the next look (``recheck_s``); one that
expires does so by itself. What is no token at all is left to the next method of the chain.
"""

from __future__ import annotations

import asyncio
import contextlib
from fnmatch import fnmatchcase
from typing import final

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.grant import grant_of
from perdure.broker.auth.method import (
    AuthMethod,
    MethodContext,
    MethodUnavailable,
    UnusableAnswer,
    allow,
    deny,
    ignore,
)
from perdure.config.schema.auth_methods import TokensAuthConfig
from perdure.errors import ConfigError, PerdureError, StorageCorrupt
from perdure.mqtt.reason_codes import NOT_AUTHORIZED
from perdure.tokens import LAYOUTS, SharedStore, Token, TokenStore, parse_id


@final
class TokensMethod(AuthMethod):
    """Looks tokens up, and keeps their store in order.

    Args:
        settings: of the method.
        context: clock, log.
    """

    def __init__(self, settings: TokensAuthConfig, context: MethodContext) -> None:
        self._settings = settings
        self._context = context
        self._store = SharedStore(settings.store, layout=settings.layout, prefix=settings.prefix)
        self._maintaining: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to maintain the store."""
        if self._settings.maintain_s:
            self._maintaining = asyncio.create_task(self._maintain(), name="tokens")

    async def probe(self) -> None:
        """Open the store."""
        await self._opened()

    async def close(self) -> None:
        """End it, and the connection."""
        if self._maintaining is not None:
            self._maintaining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._maintaining
        await self._store.close()

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Judge the token of a CONNECT."""
        presented = request.password
        if self._settings.token_in == "username":  # noqa: S105 - the name of a field
            presented = None if request.username is None else request.username.encode()
        try:
            token_id = None if presented is None else parse_id(presented.decode("ascii"))
        except UnicodeDecodeError:
            token_id = None
        if token_id is None:
            return ignore()
        token = await self._find(token_id)
        if token is None:
            return deny(reason="there is no such token, or it has expired")
        is_named = self._settings.token_in == "password" and request.username is not None  # noqa: S105
        if self._settings.check_username and is_named and request.username != token.identity:
            return deny(reason="it is another user's token")
        if token.client_id and not fnmatchcase(request.client_id, token.client_id):
            return deny(NOT_AUTHORIZED, "the token is for another client identifier")
        return self._allow(token)

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Whether the token still holds, and what it says now."""
        token = await self._find(proof) if isinstance(proof, bytes) else None
        if token is None or token.identity != request.username:
            return deny(NOT_AUTHORIZED, "its token was revoked")
        return self._allow(token)

    def _allow(self, token: Token) -> AuthResult:
        clock = self._context.clock
        try:
            grant = grant_of(token.rights) if token.rights else None
        except ValueError as error:
            raise UnusableAnswer(f"the rights of a token: {error}") from None
        return allow(
            token.identity,
            grant=grant,
            expires_us=clock.monotonic_us() + token.expires_at * 1_000_000 - clock.now_us(),
            recheck_us=self._context.recheck_us(self._settings.recheck_s),
            proof=token.id,
        )

    async def _opened(self) -> TokenStore:
        try:
            return await self._store.get(self._now_s())
        except PerdureError as error:
            raise MethodUnavailable(error.message) from None

    async def _find(self, token_id: bytes) -> Token | None:
        store = await self._opened()
        try:
            return await store.find(token_id, self._now_s())
        except StorageCorrupt as error:
            raise UnusableAnswer(error.message) from None
        except PerdureError as error:
            raise MethodUnavailable(error.message) from None

    async def _maintain(self) -> None:
        """Remove what has expired, now and then; what fails is tried again the next time."""
        while True:
            try:
                store = await self._store.get(self._now_s())
                removed = await store.maintain(self._now_s())
                self._context.log.debug("tokens.maintained", removed=removed)
            except PerdureError as error:
                self._context.log.warning("tokens.not_maintained", error=error.message)
            await asyncio.sleep(self._settings.maintain_s)

    def _now_s(self) -> int:
        return self._context.clock.now_us() // 1_000_000


def open_method(settings: TokensAuthConfig, context: MethodContext) -> TokensMethod:
    """Make the method.

    Raises:
        ConfigError: there is no store, or no such layout.
    """
    if not settings.store:
        raise ConfigError("names no store", path="auth.tokens.store")
    if "://" in settings.store:
        from perdure.storage.redis.url import parse_url

        try:
            parse_url(settings.store)
        except ConfigError as error:
            raise ConfigError(error.message, path="auth.tokens.store", hint=error.hint) from None
    if settings.layout not in LAYOUTS:
        raise ConfigError(
            f"there is no layout {settings.layout!r}",
            path="auth.tokens.layout",
            hint=f"one of {', '.join(LAYOUTS)}",
        )
    return TokensMethod(settings, context)
