"""Who has a PostgreSQL database, seen by who has lost it."""

from __future__ import annotations

import pytest

from perdure.errors import Fenced
from perdure.storage.postgres.driver import PostgresDriver
from tests.support.bounds import HANG_S


async def test_who_holds_the_lock_now_fences_who_had_it(url: str) -> None:
    """The other broker runs on: its lock is never free, so the token has to tell."""
    first = PostgresDriver(url, command_timeout_s=HANG_S)
    second = PostgresDriver(url, command_timeout_s=HANG_S)
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
