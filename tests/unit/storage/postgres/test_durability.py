"""A server that may lose what it has acknowledged is noticed."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.storage.postgres import Pool
from perdure.storage.postgres.durability import check, gaps
from tests.support.database_servers import PostgresServer

SAFE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


@pytest.mark.parametrize("level", ["on", "remote_apply", "remote_write", "local"])
def test_nothing_is_lost_with_the_defaults(level: str) -> None:
    assert gaps({**SAFE, "synchronous_commit": level}) == []


@pytest.mark.parametrize("name", SAFE)
def test_each_setting_that_is_off_is_named(name: str) -> None:
    (reason,) = gaps({**SAFE, name: "off"})
    assert reason.startswith(f"{name} is off")


@pytest.mark.postgres
async def test_the_policy_decides(server: PostgresServer) -> None:
    # The server of these tests runs with fsync=off; the session may say more.
    pool = Pool(f"{server.url}?synchronous_commit=off")
    assert await check(pool, "ignore") == []
    assert [reason.split()[0] for reason in await check(pool, "warn")] == [
        "fsync",
        "synchronous_commit",
    ]
    with pytest.raises(ConfigError, match="synchronous_commit is off"):
        await check(pool, "refuse")
    await pool.close()
