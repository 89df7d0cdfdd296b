"""Connections: shared, given back, dropped when lost, made again."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perdure.bench.ports import free_port
from perdure.errors import ConfigError, StorageError, StorageTimeout, StorageUnavailable
from perdure.storage.postgres import Pool, Statement
from tests.support.database_servers import PostgresServer

pytestmark = pytest.mark.postgres

PID = Statement("SELECT pg_backend_pid()")


async def test_statements_run_with_their_arguments(pool: Pool) -> None:
    (row,) = await pool.run(Statement("SELECT $1::integer + $2::integer AS sum", (2, 3)))
    assert row["sum"] == 5


async def test_one_transaction_for_several(pool: Pool) -> None:
    await pool.run(Statement("CREATE TABLE kept (n integer PRIMARY KEY)"))
    insert = Statement("INSERT INTO kept VALUES (1)")
    with pytest.raises(StorageError, match="duplicate key"):
        await pool.run_all([insert, insert])
    assert await pool.run(Statement("SELECT n FROM kept")) == []
    first, second = await pool.run_all([insert, Statement("SELECT n FROM kept")])
    assert (first, len(second)) == ([], 1)
    assert await pool.run_all([insert][:0]) == []


async def test_a_connection_is_used_again(pool: Pool) -> None:
    assert await pool.run(PID) == await pool.run(PID)


async def test_there_are_never_more_than_its_size(pool: Pool) -> None:
    found = await asyncio.gather(*(pool.run(PID) for _ in range(10)))
    assert len({rows[0][0] for rows in found}) <= pool.size


async def test_a_connection_that_was_cut_is_replaced(server: PostgresServer, pool: Pool) -> None:
    other = Pool(server.url, size=1)
    ((pid,),) = await pool.run(PID)
    await other.run(Statement("SELECT pg_terminate_backend($1, 5000)", (pid,)))
    # The end of the connection may be seen before it is used again, or in the middle.
    with contextlib.suppress(StorageUnavailable):
        await pool.run(PID)
    assert await pool.run(PID) != [(pid,)]
    await other.close()


async def test_a_command_that_takes_too_long_costs_its_connection(url: str) -> None:
    pool = Pool(url, size=1, command_timeout_s=0.05)
    async with pool.connection() as before:
        pass
    with pytest.raises(StorageTimeout):
        await pool.run(Statement("SELECT pg_sleep(60)"))
    assert before.is_closed()
    async with pool.connection() as after:
        assert after is not before
    await pool.close()


async def test_a_command_that_is_cancelled_costs_its_connection(pool: Pool) -> None:
    task = asyncio.create_task(pool.run(Statement("SELECT pg_sleep(60)")))
    await pool.run(PID)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await pool.run(PID)) == 1


async def test_nobody_there() -> None:
    pool = Pool(f"postgresql://perdure@127.0.0.1:{free_port()}/postgres", connect_timeout_s=1)
    with pytest.raises(StorageUnavailable):
        await pool.run(PID)
    await pool.close()


async def test_a_wrong_password_and_a_wrong_url(server: PostgresServer) -> None:
    for url in (f"postgresql://perdure:wrong@127.0.0.1:{server.port}/postgres", "http://x"):
        pool = Pool(url)
        with pytest.raises(ConfigError):
            await pool.run(PID)
        await pool.close()


async def test_a_closed_pool_says_so(pool: Pool) -> None:
    await pool.run(PID)
    async with pool.connection() as connection:
        await pool.close()
    assert connection.is_closed()
    with pytest.raises(StorageUnavailable):
        await pool.run(PID)
