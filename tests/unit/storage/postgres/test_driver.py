"""Who has a PostgreSQL database, seen by who has lost it."""

from __future__ import annotations

import pytest

from perdure.errors import Fenced
from perdure.storage.postgres.driver import PostgresDriver


async def test_who_holds_the_lock_now_fences_who_had_it(url: str) -> None:
    """The other broker runs on: its lock is never free, so the token has to tell."""
    first = PostgresDriver(url, command_timeout_s=2)
    second = PostgresDriver(url, command_timeout_s=2)
    try:
        await first.claim()
        first._drop_writer()  # as by a network that was cut
        await second.claim()
        with pytest.raises(Fenced, match="another broker has written"):
            await first.claim()
        assert second.is_connected
    finally:
        await first.close()
        await second.close()
