"""One server: logging in, loading code, and the next connection after a lost one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure.bench.ports import free_port
from perdure.errors import ConfigError, StorageUnavailable
from perdure.storage.redis.commands import Library, Script, pack
from perdure.storage.redis.node import ClientSettings, Code, Node
from perdure.storage.redis.url import RedisAddress
from tests.support.bounds import HANG_S
from tests.unit.storage.redis.fake import OK, FakeRedis, Handler, array, bulk, fake_redis

QUICK = ClientSettings(connect_timeout_s=HANG_S, timeout_s=HANG_S, wait_s=0.3)
CODE = Code((Library("lib", "body"),), (Script("return 1"),))


def node(
    port: int,
    address: RedisAddress | None = None,
    *,
    code: Code | None = None,
    settings: ClientSettings = QUICK,
) -> Node:
    return Node(
        "127.0.0.1",
        port,
        address=address or RedisAddress((("127.0.0.1", port),)),
        context=None,
        settings=settings,
        code=code or Code(),
    )


@asynccontextmanager
async def served(
    handler: Handler, *, raw: bool = False, code: Code | None = None
) -> AsyncIterator[tuple[FakeRedis, Node]]:
    async with fake_redis(handler) as server:
        server.raw = raw
        made = node(server.port, code=code)
        yield server, made
        await made.close()


async def test_it_logs_in_with_what_the_address_says() -> None:
    address = RedisAddress((), username="u", password="p", database=3)
    async with fake_redis(lambda _: OK) as server:
        made = node(server.port, address)
        await made.connect()
        assert server.commands == [
            [b"AUTH", b"u", b"p"],
            [b"SELECT", b"3"],
            [b"CLIENT", b"SETNAME", b"perdure"],
            [b"PING"],
        ]
        await made.close()


@pytest.mark.parametrize(
    "refusal", [b"-WRONGPASS invalid\r\n", b"-NOAUTH Authentication required.\r\n"]
)
async def test_a_refused_login_is_an_error_of_the_configuration(refusal: bytes) -> None:
    async with served(lambda _: refusal, raw=True) as (_, made):
        with pytest.raises(ConfigError, match="refuses the login"):
            await made.connect()


async def test_code_that_is_missing_is_loaded() -> None:
    def handler(command: list[bytes]) -> bytes:
        return array() if command[:2] == [b"FUNCTION", b"LIST"] else OK

    async with served(handler, raw=True, code=CODE) as (server, made):
        await made.connect()
        loads = [command for command in server.commands if b"LOAD" in command]
        assert loads == [
            [b"SCRIPT", b"LOAD", b"return 1"],
            [b"FUNCTION", b"LOAD", CODE.libraries[0].code.encode()],
        ]


async def test_another_client_may_have_loaded_it_meanwhile() -> None:
    def handler(command: list[bytes]) -> bytes:
        if command[0] != b"FUNCTION":
            return OK
        return array() if command[1] == b"LIST" else b"-ERR Library 'x' already exists\r\n"

    async with served(handler, raw=True, code=CODE) as (_, made):
        await made.connect()


async def test_a_server_without_functions_is_too_old() -> None:
    def handler(command: list[bytes]) -> bytes:
        return b"-ERR unknown command 'FUNCTION'\r\n" if command[0] == b"FUNCTION" else OK

    async with served(handler, raw=True, code=CODE) as (_, made):
        with pytest.raises(ConfigError, match="has no functions"):
            await made.connect()


async def test_a_lost_connection_is_made_again() -> None:
    async with served(lambda c: bulk(c[-1])) as (server, made):
        assert await made.request(pack(("GET", "a")), 1) == [b"a"]
        server.cut()
        # Whether the loss is noticed before or after the command is sent is the network's affair.
        for _ in range(2):
            try:
                assert await made.request(pack(("GET", "b")), 1) == [b"b"]
                break
            except StorageUnavailable:
                continue
        assert server.connections == 2


async def test_a_server_that_loads_its_data_is_waited_for() -> None:
    answers = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 2

    def handler(command: list[bytes]) -> bytes:
        return answers.pop() if command[0] == b"PING" and answers else OK

    async with served(handler, raw=True) as (server, made):
        assert await made.request(pack(("GET", "a")), 1) == [b"OK"]
        assert server.connections == 3


async def test_nobody_there_is_told_after_the_wait() -> None:
    made = node(free_port())
    with pytest.raises(StorageUnavailable, match="no connection"):
        await made.request(pack(("GET", "a")), 1)
    await made.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await made.request(pack(("GET", "a")), 1)


async def test_a_server_that_comes_late_is_found() -> None:
    server = FakeRedis(lambda _: OK)
    server.port = free_port()
    made = node(server.port, settings=ClientSettings(wait_s=10))
    asked = asyncio.ensure_future(made.request(pack(("GET", "a")), 1))
    while made._last_error is None:
        await asyncio.sleep(0)
    await server.start()
    assert await asked == [b"OK"]
    await made.close()
    await server.stop()


async def test_closing_ends_who_waits() -> None:
    made = node(free_port(), settings=ClientSettings(wait_s=10))
    asked = asyncio.ensure_future(made.request(pack(("GET", "a")), 1))
    while made._last_error is None:
        await asyncio.sleep(0)
    await made.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await asked


async def test_callers_share_one_attempt() -> None:
    async with served(lambda c: bulk(c[-1])) as (server, made):
        asked = [made.request(pack(("GET", n)), 1) for n in range(20)]
        assert await asyncio.gather(*asked) == [[b"%d" % n] for n in range(20)]
        assert server.connections == 1


async def test_reset_leads_to_another_connection() -> None:
    async with served(lambda _: OK) as (server, made):
        await made.connect()
        assert made.is_connected
        made.reset()
        assert not made.is_connected
        assert await made.request(pack(("GET", "a")), 1) == [b"OK"]
        assert server.connections == 2
