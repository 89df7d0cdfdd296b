"""One store for all who ask, opened when the first one does."""

from __future__ import annotations

import asyncio
from typing import final

from perdure.tokens.opening import open_tokens
from perdure.tokens.store import TokenStore


@final
class SharedStore:
    """A store that need not be there yet when its user starts.

    Whoever asks while it is being opened waits for that; a failure is of the one who asked, and the
    next one tries again. Once open it makes lost connections again by itself.

    Args:
        place: see ``open_tokens``.
        layout: see there.
        prefix: see there.
    """

    def __init__(self, place: str, *, layout: str, prefix: str) -> None:
        self._place = place
        self._layout = layout
        self._prefix = prefix
        self._store: TokenStore | None = None
        self._opening = asyncio.Lock()

    async def get(self, now_s: int) -> TokenStore:
        """The store.

        Args:
            now_s: Unix time, seconds.

        Raises:
            ConfigError, StorageUnavailable: see ``open_tokens``.
        """
        if self._store is not None:
            return self._store
        async with self._opening:
            if self._store is None:
                self._store = await open_tokens(
                    self._place, layout=self._layout, prefix=self._prefix, now_s=now_s
                )
            return self._store

    async def close(self) -> None:
        """Let it go; whoever asks again opens it again."""
        async with self._opening:
            store, self._store = self._store, None
        if store is not None:
            await store.close()
