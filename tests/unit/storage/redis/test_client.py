"""What a server asks of its client: redirections, patience, code, and orderly batches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hiredis import ReplyError

from perdure.bench.ports import free_port
from perdure.errors import ConfigError, Fenced, StorageError, StorageUnavailable
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Script, slot_of
from perdure.storage.redis.node import ClientSettings, Code
from perdure.storage.redis.url import RedisAddress
from tests.support.bounds import HANG_S
from tests.unit.storage.redis.fake import OK, FakeRedis, Handler, array, bulk, fake_redis

QUICK = ClientSettings(connect_timeout_s=HANG_S, timeout_s=HANG_S, wait_s=0.5)
SCRIPT = Script("return 1")
HALF = 8192


def echo(command: list[bytes]) -> bytes:
    return bulk(command[-1])


def get(key: str) -> Command:
    return Command(("GET", key), key.encode())


@asynccontextmanager
async def single(handler: Handler) -> AsyncIterator[tuple[FakeRedis, RedisClient]]:
    async with fake_redis(handler) as server:
        address = RedisAddress((("127.0.0.1", server.port),))
        client = await RedisClient.connect(address, settings=QUICK, code=Code((), (SCRIPT,)))
        yield server, client
        await client.close()


class Pair:
    """Two masters with half of the slots each, until a test says otherwise.

    ``b`` and ``c`` are keys of the first, ``a`` and ``d`` of the second.
    """

    def __init__(self) -> None:
        self.servers: list[FakeRedis] = []
        self.owners = [0, 1]
        self.looks = 0
        self.has_gap = False
        self.answers: list[Callable[[list[bytes]], bytes]] = [echo, echo]

    async def handle(self, index: int, command: list[bytes]) -> bytes:
        if command[0] == b"CLUSTER":
            self.looks += 1
            # An empty host means the one that was asked.
            places = [array(bulk(b""), b":%d\r\n" % server.port) for server in self.servers]
            lower = array(b":0\r\n", b":%d\r\n" % (HALF - 1), places[self.owners[0]])
            first = HALF + self.has_gap
            upper = array(b":%d\r\n" % first, b":16383\r\n", places[self.owners[1]])
            return array(lower, upper)
        return self.answers[index](command)

    def moved(self, key: bytes, to: int, word: bytes = b"MOVED") -> bytes:
        port = self.servers[to].port
        return b"-%b %d 127.0.0.1:%d\r\n" % (word, slot_of(key), port)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Pair, RedisClient]]:
    pair = Pair()
    async with AsyncExitStack() as stack:
        for index in range(2):
            handler = functools.partial(pair.handle, index)
            pair.servers.append(await stack.enter_async_context(fake_redis(handler)))
        address = RedisAddress((("127.0.0.1", pair.servers[0].port),), cluster=True)
        client = await RedisClient.connect(address, settings=QUICK)
        yield pair, client
        await client.close()


async def test_a_batch_has_its_replies_in_order() -> None:
    async with single(echo) as (_, client):
        assert await client.execute([get("a"), get("b"), get("a")]) == [b"a", b"b", b"a"]
        assert await client.execute([]) == []


async def test_an_error_reply_is_the_callers_to_judge() -> None:
    async with single(lambda c: b"-FENCED 3\r\n" if c[-1] == b"b" else OK) as (_, client):
        first, second = await client.execute([get("a"), get("b")])
        assert first == b"OK"
        assert isinstance(second, ReplyError)
        with pytest.raises(Fenced):
            await client.call(get("b"))


@pytest.mark.parametrize(
    "refusal", [b"-NOSCRIPT No matching script.\r\n", b"-ERR Function not found\r\n"]
)
async def test_lost_code_is_loaded_and_only_what_was_refused_sent_again(refusal: bytes) -> None:
    refused = [b"b", b"c"]

    def handler(command: list[bytes]) -> bytes:
        if command[-1] in refused:
            refused.remove(command[-1])
            return refusal
        return echo(command)

    async with single(handler) as (server, client):
        server.commands.clear()
        commands = [get("a"), get("b"), get("c"), get("d")]
        assert await client.execute(commands) == [b"a", b"b", b"c", b"d"]
        names = [(command[0], command[-1]) for command in server.commands]
        assert names[:4] == [(b"GET", key) for key in (b"a", b"b", b"c", b"d")]
        assert (b"SCRIPT", SCRIPT.body.encode()) in names[4:-2]
        assert names[-2:] == [(b"GET", b"b"), (b"GET", b"c")]


async def test_another_moment_is_waited_for() -> None:
    answers = [b"-TRYAGAIN Multiple keys\r\n", b"-BUSY script\r\n", b"-LOADING data\r\n"]

    def handler(command: list[bytes]) -> bytes:
        return answers.pop() if command[-1] == b"b" and answers else echo(command)

    async with single(handler) as (server, client):
        assert await client.execute([get("a"), get("b")]) == [b"a", b"b"]
        assert server.names == ["GET"] * 5


async def test_a_moment_that_does_not_come_is_told() -> None:
    async with single(lambda _: b"-BUSY script\r\n") as (_, client):
        with pytest.raises(StorageUnavailable, match="BUSY"):
            await client.call(get("a"))


async def test_a_replica_is_left_for_whoever_has_its_name_now() -> None:
    answers = [b"-READONLY You can't write against a read only replica.\r\n"]

    def handler(command: list[bytes]) -> bytes:
        return answers.pop() if answers else echo(command)

    async with single(handler) as (server, client):
        assert await client.call(get("a")) == b"a"
        assert server.connections == 2


async def test_a_cut_in_the_middle_leaves_the_outcome_open() -> None:
    async with single(lambda c: echo(c) if c[-1] == b"a" else None) as (server, client):
        asked = asyncio.ensure_future(client.execute([get("a"), get("b")]))
        while len(server.names) < 2:
            await asyncio.sleep(0)
        server.cut()
        with pytest.raises(StorageUnavailable):
            await asked
        # Never sent again by the client: only the caller knows whether that is right.
        assert server.names == ["GET", "GET"]
        assert await client.call(get("a")) == b"a"


async def test_a_transaction_is_all_or_nothing() -> None:
    def handler(command: list[bytes]) -> bytes:
        if command[0] == b"EXEC":
            return array(b":1\r\n", b"-ERR value\r\n")
        return OK if command[0] == b"MULTI" else b"+QUEUED\r\n"

    async with single(handler) as (server, client):
        one, error = await client.transaction([get("a"), get("b")])
        assert one == 1
        assert isinstance(error, ReplyError)
        assert server.names == ["MULTI", "GET", "GET", "EXEC"]


async def test_a_transaction_that_was_refused_says_why() -> None:
    def handler(command: list[bytes]) -> bytes:
        if command[0] == b"EXEC":
            return b"-EXECABORT Transaction discarded\r\n"
        return b"-ERR unknown command\r\n" if command[0] == b"GET" else OK

    async with single(handler) as (_, client):
        with pytest.raises(StorageError, match="unknown command"):
            await client.transaction([get("a")])


async def test_a_transaction_that_was_redirected_is_sent_again() -> None:
    async with cluster() as (pair, client):

        def first(command: list[bytes]) -> bytes:
            if command[0] == b"EXEC":
                return b"-EXECABORT Transaction discarded\r\n"
            return pair.moved(b"b", 1) if command[0] == b"GET" else OK

        def second(command: list[bytes]) -> bytes:
            return array(b":7\r\n") if command[0] == b"EXEC" else OK

        pair.answers = [first, second]
        assert await client.transaction([get("b")]) == [7]


async def test_a_batch_is_shared_among_the_nodes() -> None:
    async with cluster() as (pair, client):
        keys = ["a", "b", "c", "d", "b"]
        assert await client.execute([get(key) for key in keys]) == [key.encode() for key in keys]
        gets = [[c[1] for c in server.commands if c[0] == b"GET"] for server in pair.servers]
        assert gets == [[b"b", b"c", b"b"], [b"a", b"d"]]


async def test_a_moved_slot_is_followed_and_remembered() -> None:
    async with cluster() as (pair, client):
        pair.answers[0] = lambda c: pair.moved(c[1], 1) if c[1] == b"b" else echo(c)
        assert await client.execute([get("b"), get("c"), get("b")]) == [b"b", b"c", b"b"]
        pair.servers[0].commands.clear()
        assert await client.call(get("b")) == b"b"
        assert pair.servers[0].names == []
        assert pair.looks == 1


async def test_a_slot_on_its_way_is_asked_for_once() -> None:
    async with cluster() as (pair, client):
        pair.answers[0] = lambda c: pair.moved(c[1], 1, b"ASK")
        pair.answers[1] = lambda c: OK if c[0] == b"ASKING" else echo(c)
        assert await client.execute([get("b"), get("a"), get("c")]) == [b"b", b"a", b"c"]
        asked = [command for command in pair.servers[1].commands if command[0] != b"CLIENT"]
        assert asked[-4:] == [[b"ASKING"], [b"GET", b"b"], [b"ASKING"], [b"GET", b"c"]]
        # Its owner is the same until it says otherwise.
        pair.answers[0] = echo
        assert await client.call(get("b")) == b"b"


async def test_a_dead_node_is_looked_for_anew() -> None:
    async with cluster() as (pair, client):
        assert await client.call(get("a")) == b"a"
        await pair.servers[1].stop()
        with pytest.raises(StorageUnavailable):
            await client.call(get("a"))
        pair.owners = [0, 0]
        assert await client.call(get("a")) == b"a"
        assert pair.looks == 2
        await pair.servers[1].start()


async def test_a_cluster_that_is_down_is_looked_at_again() -> None:
    async with cluster() as (pair, client):
        answers = [b"-CLUSTERDOWN The cluster is down\r\n"]
        pair.answers[0] = lambda c: answers.pop() if answers else echo(c)
        assert await client.call(get("b")) == b"b"
        assert pair.looks == 2


async def test_a_cluster_with_slots_that_nobody_has_is_refused() -> None:
    pair = Pair()
    pair.has_gap = True
    async with fake_redis(functools.partial(pair.handle, 0)) as server:
        pair.servers = [server, server]
        address = RedisAddress((("127.0.0.1", server.port),), cluster=True)
        with pytest.raises(StorageUnavailable, match="all slots"):
            await RedisClient.connect(address, settings=QUICK)


async def test_any_node_of_the_address_will_do() -> None:
    pair = Pair()
    async with fake_redis(functools.partial(pair.handle, 0)) as server:
        pair.servers = [server, server]
        nodes = (("127.0.0.1", free_port()), ("127.0.0.1", server.port))
        client = await RedisClient.connect(RedisAddress(nodes, cluster=True), settings=QUICK)
        assert await client.call(get("a")) == b"a"
        await client.close()


async def test_scan_asks_every_master_to_the_end() -> None:
    def scan(command: list[bytes]) -> bytes:
        assert command[:1] + command[2:4] == [b"SCAN", b"MATCH", b"p*"]
        if command[1] == b"0":
            return array(bulk(b"5"), array(bulk(b"x"), bulk(b"y")))
        return array(bulk(b"0"), array(bulk(b"z")))

    async with cluster() as (pair, client):
        pair.answers = [scan, scan]
        assert [keys async for keys in client.scan(b"p*")] == [[b"x", b"y"], [b"z"]] * 2
        pair.answers = [echo, echo]
        assert await client.on_masters(Command(("INFO", "x"))) == [b"x", b"x"]


async def test_nobody_there_and_a_refused_login_are_different_errors() -> None:
    with pytest.raises(StorageUnavailable):
        await RedisClient.connect(RedisAddress((("127.0.0.1", free_port()),)), settings=QUICK)
    async with fake_redis(lambda _: b"-WRONGPASS invalid\r\n") as server:
        server.raw = True
        with pytest.raises(ConfigError):
            await RedisClient.connect(
                RedisAddress((("127.0.0.1", server.port),), password="x"), settings=QUICK
            )
