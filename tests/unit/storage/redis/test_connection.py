"""One connection: replies in order, bounds, and what happens to the unanswered when it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hiredis import ReplyError

from perdure.bench.ports import free_port
from perdure.errors import StorageTimeout, StorageUnavailable
from perdure.storage.redis.commands import Argument, pack
from perdure.storage.redis.connection import Connection, is_error, open_connection
from tests.support.bounds import HANG_S
from tests.unit.storage.redis.fake import OK, FakeRedis, Handler, array, bulk, fake_redis


async def connected(port: int, *, timeout_s: float = 10, bytes_max: int = 1 << 20) -> Connection:
    return await open_connection(
        "127.0.0.1",
        port,
        name="the test",
        context=None,
        connect_timeout_s=HANG_S,
        timeout_s=timeout_s,
        bytes_max=bytes_max,
    )


@asynccontextmanager
async def opened(
    handler: Handler, *, timeout_s: float = 10, bytes_max: int = 1 << 20
) -> AsyncIterator[tuple[FakeRedis, Connection]]:
    async with fake_redis(handler) as server:
        connection = await connected(server.port, timeout_s=timeout_s, bytes_max=bytes_max)
        yield server, connection
        connection.close()


def echo(command: list[bytes]) -> bytes:
    return bulk(command[-1])


def command(*args: Argument) -> bytes:
    return pack(args)


async def test_replies_come_to_their_batches_in_order() -> None:
    async with opened(echo) as (_, connection):
        first = connection.send(command("GET", "a") + command("GET", "b"), 2)
        second = connection.send(command("GET", "c"), 1)
        assert await second == [b"c"]
        assert await first == [b"a", b"b"]


async def test_a_reply_may_come_in_any_pieces() -> None:
    reply = array(bulk(b"x" * 300), b":7\r\n", b"-ERR no\r\n", b"$-1\r\n")

    async def byte_by_byte(_: list[bytes]) -> bytes:
        (writer,) = server._writers
        for at in range(len(reply) - 1):
            writer.write(reply[at : at + 1])
            await writer.drain()
        return reply[-1:]

    async with opened(byte_by_byte) as (server, connection):
        (got,) = await connection.send(command("GET"), 1)
        assert isinstance(got, list)
        assert got[:2] == [b"x" * 300, 7]
        assert is_error(got[2])
        assert str(got[2]) == "ERR no"
        assert got[3] is None


async def test_an_error_reply_is_a_reply() -> None:
    async with opened(lambda _: b"-OOM full\r\n") as (_, connection):
        (reply,) = await connection.send(command("SET"), 1)
        assert isinstance(reply, ReplyError)
        assert connection.is_open


async def test_a_turn_is_one_write() -> None:
    async with opened(echo) as (_, connection):
        transport = connection._transport
        assert transport is not None
        written: list[bytes] = []
        original, connection._transport = transport, _Recording(transport, written)  # type: ignore[assignment]
        sent = [connection.send(command("GET", n), 1) for n in range(5)]
        assert written == []
        assert await asyncio.gather(*sent) == [[b"%d" % n] for n in range(5)]
        assert len(written) == 1
        connection._transport = original


class _Recording:
    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        self._transport = transport
        self._written = written

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._transport.write(data)


async def test_a_lost_connection_fails_what_is_unanswered() -> None:
    async with opened(lambda c: OK if c[0] == b"SET" else None) as (server, connection):
        assert await connection.send(command("SET"), 1) == [b"OK"]
        waiting = connection.send(command("SET") + command("GET"), 2)
        server.cut()
        with pytest.raises(StorageUnavailable):
            await waiting
        await connection.lost
        assert not connection.is_open
        assert connection.reason.startswith("the test: the connection was lost")
        with pytest.raises(StorageUnavailable):
            await connection.send(command("SET"), 1)


async def test_a_silent_server_is_given_up() -> None:
    async with opened(lambda _: None, timeout_s=0.05) as (_, connection):
        first, second = (connection.send(command("GET"), 1) for _ in range(2))
        with pytest.raises(StorageTimeout, match=r"0\.05 s"):
            await first
        with pytest.raises(StorageTimeout):
            await second
        assert not connection.is_open


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b":1\r\n:2\r\n"])
async def test_a_peer_that_is_no_redis_is_left(garbage: bytes) -> None:
    async with opened(lambda _: garbage) as (_, connection):
        sent = connection.send(command("GET"), 1)
        if garbage.startswith(b":"):
            # One reply too many belongs to nobody.
            assert await sent == [1]
            await connection.lost
        else:
            with pytest.raises(StorageUnavailable, match="does not speak"):
                await sent
        assert not connection.is_open


async def test_a_caller_that_gave_up_does_not_disturb_the_others() -> None:
    async with opened(echo) as (_, connection):
        first = connection.send(command("GET", "a"), 1)
        second = connection.send(command("GET", "b"), 1)
        first.cancel()
        assert await second == [b"b"]


async def test_a_full_connection_makes_callers_wait() -> None:
    answer = asyncio.Event()

    async def later(_: list[bytes]) -> bytes:
        await answer.wait()
        return OK

    async with opened(later, bytes_max=1000) as (_, connection):
        large = connection.send(command("SET", "k", b"x" * 2000), 1)
        assert not connection.has_room
        waiting = asyncio.ensure_future(connection.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        answer.set()
        await waiting
        assert connection.has_room
        assert await large == [b"OK"]


async def test_who_waits_for_room_hears_of_the_end() -> None:
    async with opened(lambda _: None, bytes_max=10) as (_, connection):
        sent = connection.send(command("SET", "k", b"x" * 20), 1)
        waiting = asyncio.ensure_future(connection.room())
        await asyncio.sleep(0)
        connection.close()
        await waiting
        with pytest.raises(StorageUnavailable):
            await sent


async def test_nobody_there_is_told() -> None:
    with pytest.raises(StorageUnavailable, match="the test: no connection"):
        await connected(free_port())


async def test_a_server_without_tls_is_told() -> None:
    async with fake_redis(echo) as server:
        with pytest.raises(StorageUnavailable, match="no connection"):
            await open_connection(
                "127.0.0.1",
                server.port,
                name="the test",
                context=ssl.create_default_context(),
                connect_timeout_s=0.2,
                timeout_s=1,
                bytes_max=1,
            )
