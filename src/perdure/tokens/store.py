"""What every store of tokens does. One contract suite runs on all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from perdure.errors import ConfigError
from perdure.tokens.token import Listed, Token, check_token


class TokenStore(ABC):
    """Keeps tokens until they expire or are revoked.

    A token that was saved is found until then, whatever ``maintain`` does meanwhile; one that has
    expired is never found, swept or not. All of it may raise ``StorageUnavailable`` and
    ``StorageTimeout``: then it is not known whether a change took place.
    """

    async def save(self, tokens: Sequence[Token], now_s: int) -> None:
        """Add tokens, or replace those that have the same identifiers.

        Args:
            tokens: any number; they are sent together.
            now_s: Unix time, seconds.

        Raises:
            ValueError: one of them cannot be kept; nothing was saved.
        """
        for token in tokens:
            check_token(token, now_s)
        await self._save(tokens, now_s)

    @abstractmethod
    async def _save(self, tokens: Sequence[Token], now_s: int) -> None:
        """``save`` for what was checked."""

    @abstractmethod
    async def find(self, token_id: bytes, now_s: int) -> Token | None:
        """The token with an identifier, if it holds; one round trip.

        Raises:
            StorageCorrupt: something else is in its place.
        """

    @abstractmethod
    async def revoke(self, token_id: bytes) -> bool:
        """Forget a token. Returns whether it was there."""

    async def handle(self, token_id: bytes) -> str:
        """The name of a token in lists.

        Raises:
            ConfigError: this layout has no lists.
        """
        raise no_lists()

    async def page(self, after: str, limit: int, now_s: int) -> tuple[list[Listed], str]:
        """Tokens that hold, in an order of the store's own.

        Args:
            after: what the page before has returned; empty = from the beginning.
            limit: items at most; there may be fewer, or none, and more to come.
            now_s: Unix time, seconds.

        Returns:
            The items, and what the next page takes; empty = that was all.

        Raises:
            ConfigError: this layout has no lists.
            ValueError: ``after`` is none of this store.
        """
        raise no_lists()

    async def revoke_handle(self, handle: str, now_s: int) -> Listed | None:
        """Forget the token of a name. Returns what it was; None = there is none.

        Raises:
            ConfigError: this layout has no lists.
        """
        raise no_lists()

    @abstractmethod
    async def maintain(self, now_s: int) -> int:
        """Remove what has expired, and do what else the layout needs now and then.

        Returns:
            How many tokens were removed by it (0 where the server does so by itself).
        """

    @abstractmethod
    async def count(self) -> int:
        """How many are kept, expired ones that were not removed among them. Reads all keys."""

    @abstractmethod
    async def close(self) -> None:
        """Give up the connection or the file."""


def no_lists() -> ConfigError:
    """The refusal of a layout that cannot be read in pages."""
    return ConfigError(
        "tokens are not listed in this layout of the seed",
        path="auth.tokens.layout",
        hint="take planned, or an embedded store",
    )
