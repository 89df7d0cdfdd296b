"""Operations on login tokens, in the store that ``auth.tokens`` names."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.tokens import (
    IssueToken,
    ListTokens,
    RevokeToken,
    TokenMade,
    TokenPage,
    TokenRevoked,
    TokenRow,
)
from perdure.broker.services import Services
from perdure.clock import Clock
from perdure.config.schema.auth_methods import TokensAuthConfig
from perdure.config.units import format_time
from perdure.identity.expiry import expiry_us
from perdure.server.administration.service import Call, Handler
from perdure.tokens import Listed, SharedStore, Token, TokenStore, new_id, show_id
from perdure.topic.rules import parse_rule

LOOKED_AT_MAX: Final = 5_000
"""Tokens that are looked at for one page of an identity's."""

METHOD: Final = "tokens"
"""Of authentication, whose clients a revocation is about."""


@final
class TokenOperations:
    """Answers what is asked of tokens; a part of the broker's life.

    Args:
        services: the parts of the broker.
        settings: ``auth.tokens``.
        clock: wall time.
    """

    name: str = "tokens"

    def __init__(self, services: Services, settings: TokensAuthConfig, clock: Clock) -> None:
        self._services = services
        self._settings = settings
        self._clock = clock
        self._store = SharedStore(settings.store, layout=settings.layout, prefix=settings.prefix)

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListTokens: self.list_page,
            IssueToken: self.issue,
            RevokeToken: self.revoke,
        }

    async def start(self) -> None:
        """The store is opened when somebody asks."""

    async def stop(self) -> None:
        """Let it go."""
        await self._store.close()

    async def list_page(self, request: ListTokens, _call: Call) -> TokenPage:
        """A page of them."""
        store, now_s = await self._open(), self._now_s()
        items: list[TokenRow] = []
        after, looked_at = request.cursor, 0
        while len(items) < request.limit and looked_at < LOOKED_AT_MAX:
            try:
                wanted = request.limit - len(items)
                found, after = await store.page(after, wanted, now_s)
            except ValueError as error:
                raise Refused("bad_request", "the cursor is not one of this list") from error
            looked_at += len(found) or wanted
            items += [_row(each) for each in found if request.identity in ("", each.identity)]
            if not after:
                break
        return TokenPage(items=items, next_cursor=after or None)

    async def issue(self, request: IssueToken, call: Call) -> TokenMade:
        """Make one."""
        store, now_s = await self._open(), self._now_s()
        expires_us = expiry_us(request.expires, self._clock.now_us())
        try:
            for right in request.rights:
                parse_rule(right.strip(), is_pattern=True)
            token = Token(
                new_id(secrets.token_bytes),
                request.identity,
                expires_us // 1_000_000,
                request.client_id,
                tuple(request.rights),
            )
            handle = await store.handle(token.id)
            await store.save([token], now_s)
        except ValueError as error:
            raise Refused("bad_request", str(error)) from error
        made = Listed(handle, token.identity, token.expires_at, token.client_id, token.rights)
        call.after = row = _row(made)
        return TokenMade(
            token=show_id(token.id),
            **{name: getattr(row, name) for name in row.__struct_fields__},
        )

    async def revoke(self, request: RevokeToken, call: Call) -> TokenRevoked:
        """Forget one, and look at who is connected by it."""
        store = await self._open()
        found = await store.revoke_handle(request.id, self._now_s())
        if found is None:
            raise Refused("not_found", "there is no such token")
        call.before = _row(found)
        count = self._services.login_expiry.look_again(found.identity, method=METHOD)
        return TokenRevoked(id=request.id, identity=found.identity, checked=count)

    async def _open(self) -> TokenStore:
        if not self._settings.store:
            raise Refused(
                "not_available",
                "this broker has no token store",
                hint="auth.tokens.store names one; chains take the method tokens",
            )
        return await self._store.get(self._now_s())

    def _now_s(self) -> int:
        return self._clock.now_us() // 1_000_000


def _row(each: Listed) -> TokenRow:
    expires_us = each.expires_at * 1_000_000
    return TokenRow(
        id=each.handle,
        identity=each.identity,
        expires_at=format_time(expires_us),
        expires_at_us=expires_us,
        client_id=each.client_id,
        rights=list(each.rights),
    )
