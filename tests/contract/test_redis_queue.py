"""Device queues on real Redis servers that lose code, connections and slots in the middle."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import redis as redis_py

from perdure.errors import (
    ConfigError,
    StorageError,
    StorageFull,
    StorageTimeout,
    StorageUnavailable,
)
from perdure.storage.device_queue import DeviceQueue, EntryState
from perdure.storage.redis import (
    RedisClient,
    durability,
    open_device_queue,
    parse_url,
)
from perdure.storage.redis.commands import slot_of
from tests.contract.queues import NOW_US, PATIENT, SECOND_US, append, entry, payloads, read_all
from tests.support.database_servers import RedisServer, TlsFiles
from tests.support.redis_cluster import RedisCluster
from tests.unit.net.helpers import issue

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
]
Layout = Literal["compact", "tbmq"]
both = pytest.mark.parametrize("layout", ["compact", "tbmq"])


@asynccontextmanager
async def opened(url: str, layout: Layout, **options: Any) -> AsyncIterator[DeviceQueue]:
    queue = await open_device_queue(url, layout=layout, **{"settings": PATIENT, **options})
    try:
        yield queue
    finally:
        await queue.close()


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    redis_server.command("FLUSHALL")
    return redis_server


@pytest.fixture
def cluster(redis_cluster: RedisCluster) -> RedisCluster:
    for node in redis_cluster.nodes:
        node.command("FLUSHALL")
    return redis_cluster


READS_MAX = 10


class Ledger:
    """Writers that append numbered messages to many clients, again until each is acknowledged."""

    def __init__(self, queue: DeviceQueue, clients: int, *, seed: int) -> None:
        self.queue = queue
        self.names = [f"client-{n}" for n in range(clients)]
        self.sent = dict.fromkeys(self.names, 0)
        self.retries = 0
        self.stopped = False
        self.random = random.Random(seed)

    async def write(self) -> None:
        """Append for ever; what fails is appended again at the same position."""
        while not self.stopped:
            chosen = self.random.sample(self.names, 5)
            batch = [
                entry(name, b"%d" % (self.sent[name] + n), position=self.sent[name] + n)
                for name in chosen
                for n in (1, 2)
            ]
            try:
                await self.queue.append(batch, now_us=NOW_US, limit=60_000)
            except (StorageUnavailable, StorageTimeout):
                self.retries += 1
                continue
            for name in chosen:
                self.sent[name] += 2

    async def check(self) -> None:
        """Everything acknowledged is there once and in order; of the last, perhaps more."""
        assert sum(self.sent.values()) > 0
        for name in self.names:
            got = [int(payload) for payload in await self._read(name)]
            assert got[: self.sent[name]] == list(range(1, self.sent[name] + 1))
            assert len(got) - self.sent[name] in (0, 1, 2)

    async def _read(self, name: str) -> list[bytes]:
        """Its messages; a connection that was killed behind the last write is noticed here."""
        for _ in range(READS_MAX):
            try:
                return await payloads(self.queue, name)
            except StorageUnavailable:
                self.retries += 1
        raise AssertionError(f"the server was away {READS_MAX} times")


@both
async def test_code_that_is_flushed_in_the_middle_comes_back(
    server: RedisServer, layout: Layout
) -> None:
    async with opened(server.url, layout) as queue:
        ledger = Ledger(queue, 20, seed=1)
        writer = asyncio.create_task(ledger.write())
        for _ in range(10):
            await asyncio.to_thread(
                server.commands, [("SCRIPT", "FLUSH"), ("FUNCTION", "FLUSH"), ("PING",)]
            )
        ledger.stopped = True
        await writer
        assert ledger.retries == 0
        await ledger.check()


@both
async def test_connections_that_are_killed_lose_nothing(
    server: RedisServer, layout: Layout
) -> None:
    async with opened(server.url, layout) as queue:
        ledger = Ledger(queue, 20, seed=2)
        writer = asyncio.create_task(ledger.write())
        for _ in range(10):
            await asyncio.to_thread(server.command, "CLIENT", "KILL", "TYPE", "normal")
        ledger.stopped = True
        await writer
        await ledger.check()


@both
async def test_kill_9_at_any_moment_loses_nothing_acknowledged(layout: Layout) -> None:
    with RedisServer(appendfsync="always") as own:
        settings = PATIENT
        async with opened(own.url, layout, settings=settings) as queue:
            ledger = Ledger(queue, 20, seed=3)
            writer = asyncio.create_task(ledger.write())
            for round_ in range(5):
                before = sum(ledger.sent.values())
                while sum(ledger.sent.values()) < before + 40 * (round_ + 1):
                    await asyncio.sleep(0)
                await asyncio.to_thread(own.restart, kill=True)
            ledger.stopped = True
            await writer
            assert ledger.retries > 0
            await ledger.check()


@both
async def test_kill_9_loses_no_acknowledgement_and_no_pubrec(layout: Layout) -> None:
    with RedisServer(appendfsync="always") as own:
        async with opened(own.url, layout, settings=PATIENT) as queue:
            done = 0
            stopped = False

            async def surely(
                call: Callable[..., Awaitable[object]], *args: Any, **options: Any
            ) -> None:
                # Every call may be made again: positions and identifiers say what is meant.
                while True:
                    try:
                        await call(*args, **options)
                    except (StorageUnavailable, StorageTimeout):
                        continue
                    return

            async def settle() -> None:
                nonlocal done
                while not stopped:
                    at = 3 * done
                    batch = [
                        entry(payload=b"%d" % n, qos=2, position=n, serial=n)
                        for n in range(at + 1, at + 4)
                    ]
                    await surely(queue.append, batch, now_us=NOW_US, limit=9999)
                    await surely(queue.acknowledge, "c1", [at + 1], epoch=1)
                    await surely(queue.release, "c1", [at + 2], epoch=1)
                    done += 1

            await queue.take("c1", epoch=1)
            owner = asyncio.create_task(settle())
            for round_ in range(4):
                before = done
                while done < before + 15 + 7 * round_:
                    await asyncio.sleep(0)
                await asyncio.to_thread(own.restart, kill=True)
            stopped = True
            await owner
            states = [(read.packet_id, read.state) for read in await read_all(queue)]
            assert states == [
                (3 * n + offset, state)
                for n in range(done)
                for offset, state in ((2, EntryState.PUBREL), (3, EntryState.PUBLISH))
            ]


@both
async def test_slots_that_move_during_writes_lose_nothing(
    cluster: RedisCluster, layout: Layout
) -> None:
    async with opened(cluster.url, layout, settings=PATIENT) as queue:
        ledger = Ledger(queue, 60, seed=4)
        await append(queue, *(entry(name, b"0") for name in ledger.names))
        writer = asyncio.create_task(ledger.write())
        slots = sorted({slot_of(b"{%b}" % name.encode()) for name in ledger.names})
        busy = [slot for slot in slots if slot < 16_384 // 3]
        idle = [slot for slot in range(16_384 // 3) if slot not in busy]
        # A thousand once is enough: it is the slots with queues that matter.
        moving = busy + idle[: (1000 if layout == "compact" else 100) - len(busy)]
        assert len(busy) > 10
        before = dict(ledger.sent)
        # There, or back again after another test.
        source = cluster.owner_of(moving[0])
        target = next(node for node in cluster.nodes[:2] if node is not source)
        await asyncio.to_thread(cluster.move_slots, moving, source, target)
        ledger.stopped = True
        await writer
        assert ledger.sent != before
        for name in ledger.names:
            got = [int(payload) for payload in await payloads(queue, name)]
            assert got[: ledger.sent[name] + 1] == list(range(ledger.sent[name] + 1))
        assert len([stats async for stats in queue.clients()]) == 60


@both
async def test_reading_and_acknowledging_go_on_while_slots_move(
    cluster: RedisCluster, layout: Layout
) -> None:
    names = [name for name in (f"c{n}" for n in range(300)) if slot_of(name.encode()) > 11_000][:40]
    async with opened(cluster.url, layout, settings=PATIENT) as queue:
        await append(queue, *(entry(name, b"%d" % n, qos=2) for name in names for n in range(6)))
        for name in names:
            await queue.take(name, epoch=1)
        first, _, third = cluster.nodes
        slots = sorted({slot_of(name.encode()) for name in names})
        moving = asyncio.create_task(asyncio.to_thread(cluster.move_slots, slots, third, first))
        rounds = 0
        while not moving.done() or not rounds:
            for name in names:
                states = [(read.packet_id, read.state) for read in await read_all(queue, name)]
                assert [packet_id for packet_id, _ in states] == [1, 2, 3, 4, 5, 6]
                await queue.release(name, [1 + rounds % 6], epoch=1)
            rounds += 1
        await moving
        for name in names:
            assert await queue.acknowledge(name, [1, 3, 4], epoch=1) == 3
            assert [read.packet_id for read in await read_all(queue, name)] == [2, 5, 6]
        await asyncio.to_thread(cluster.move_slots, slots, first, third)


@both
async def test_tls_and_password_are_taken_from_the_url(layout: Layout, tmp_path: Path) -> None:
    authority = issue(tmp_path, "ca", "Test authority")
    issue(tmp_path, "server", "localhost", authority)
    tls = TlsFiles(*(tmp_path / name for name in ("ca.pem", "server.pem", "server.key")))
    with RedisServer(tls=tls, appendfsync="") as own:
        trusting = f"{own.url}?ca={tls.authority}"
        async with opened(trusting, layout) as queue:
            await append(queue, entry(payload=b"secret"))
            assert await payloads(queue) == [b"secret"]
        with pytest.raises(StorageError, match=r"no connection.*certificate"):
            await open_device_queue(own.url, layout=layout)
        with pytest.raises(ConfigError, match="refuses the login"):
            await open_device_queue(trusting.replace(own.password, "guess"), layout=layout)


@both
async def test_a_named_user_and_a_database_are_taken_from_the_url(
    server: RedisServer, layout: Layout
) -> None:
    server.command("ACL", "SETUSER", "broker", "on", ">pass@word", "~*", "+@all")
    url = f"redis://broker:pass%40word@127.0.0.1:{server.port}/5"
    async with opened(url, layout) as queue, opened(server.url, layout) as other:
        await append(queue, entry())
        assert await payloads(queue) == [b"x"]
        assert await payloads(other) == []


@both
async def test_the_rights_that_the_documentation_names_are_enough(
    server: RedisServer, layout: Layout
) -> None:
    rights = ["+@all", "-@dangerous", "+config|get"]
    keys = "~perdure:*" if layout == "compact" else "~{*"
    server.command("ACL", "SETUSER", "modest", "reset", "on", ">word", keys, *rights)
    server.commands([("SCRIPT", "FLUSH"), ("FUNCTION", "FLUSH")])
    async with opened(f"redis://modest:word@127.0.0.1:{server.port}", layout) as queue:
        await queue.take("c1", epoch=1)
        await append(queue, *(entry(expires_at_us=NOW_US + SECOND_US, qos=2) for _ in range(4)))
        assert await queue.release("c1", [1], epoch=1) == 1
        assert await queue.acknowledge("c1", [2], epoch=1) == 1
        assert len(await read_all(queue)) == 3
        assert [stats.client_id async for stats in queue.clients()] == ["c1"]
        assert await queue.sweep(now_us=NOW_US + SECOND_US, limit=9) == 2
        assert await queue.trim_through("c1", 9, epoch=1) == 1
        assert await queue.discard("c1", epoch=1)
        modest = f"redis://modest:word@127.0.0.1:{server.port}"
        client = await RedisClient.connect(parse_url(modest))
        assert await durability.check(client, "refuse") == []
        await client.close()


@both
async def test_a_backlog_is_never_one_reply(server: RedisServer, layout: Layout) -> None:
    count, size, page_bytes = 1500, 65_536, 1_000_000
    payload = bytes(range(256)) * (size // 256)
    async with opened(server.url, layout) as queue:
        for _ in range(0, count, 50):
            await append(queue, *(entry(payload=payload) for _ in range(50)), limit=10_000)
        server.command("CONFIG", "RESETSTAT")
        # A larger reply would have this connection cut.
        server.command(
            "CONFIG", "SET", "client-output-buffer-limit", f"normal {8 * page_bytes} 0 0"
        )
        try:
            read = await read_all(queue, limit=1000, bytes_max=page_bytes)
        finally:
            server.command("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
        assert len(read) == count
        assert all(one.message.payload == payload for one in read)


@both
async def test_a_full_server_refuses_and_keeps_what_it_has(
    server: RedisServer, layout: Layout
) -> None:
    async with opened(server.url, layout) as queue:
        await queue.take("c1", epoch=1)
        await append(queue, entry(payload=b"kept"))
        server.command("CONFIG", "SET", "maxmemory", 1)
        try:
            with pytest.raises(StorageFull):
                await append(queue, entry(payload=b"refused"))
            assert await payloads(queue) == [b"kept"]
            # What makes room must go on.
            assert await queue.acknowledge("c1", [1], epoch=1) == 1
        finally:
            server.command("CONFIG", "SET", "maxmemory", 0)
        assert await payloads(queue) == []


async def test_a_shallow_queue_is_one_packed_list(server: RedisServer) -> None:
    async with opened(server.url, "compact") as queue:
        await append(queue, *(entry(payload=b"x" * 63) for _ in range(120)))
        assert server.command("OBJECT", "ENCODING", "perdure:q:{c1}") == b"listpack"
        await append(queue, *(entry(payload=b"x" * 63) for _ in range(20)))
        assert server.command("OBJECT", "ENCODING", "perdure:q:{c1}") == b"hashtable"
        assert len(await read_all(queue)) == 140


async def test_a_wrap_in_a_queue_that_is_never_empty(server: RedisServer) -> None:
    async with opened(server.url, "compact") as queue:
        await queue.take("c1", epoch=1)
        await append(queue, entry(payload=b"first", packet_id=65_000))
        for start in range(0, 1200, 100):
            ids = await append(
                queue, *(entry(payload=b"%d" % n) for n in range(start, start + 100))
            )
            # The oldest stays; what came with it goes.
            assert await queue.acknowledge("c1", ids[:-1], epoch=1) == 99
        read = await read_all(queue)
        expected = [(65_000 + n * 100 - 1) % 65_535 + 1 for n in range(13)]
        assert [one.packet_id for one in read] == expected


async def test_a_pubrel_that_stays_makes_nothing_slow(server: RedisServer) -> None:
    async with opened(server.url, "compact") as queue:
        await queue.take("c1", epoch=1)
        await append(queue, entry(qos=2))
        assert await queue.release("c1", [1], epoch=1) == 1
        for _ in range(20):
            await append(queue, *(entry() for _ in range(100)), limit=10)
        server.command("CONFIG", "RESETSTAT")
        (result,) = await queue.append([entry(payload=b"last")], now_us=NOW_US, limit=10)
        assert [gone.packet_id for gone in result.trimmed] == [1992]
        calls = str(server.command("INFO", "commandstats"))
        # Not one for each of the two thousand identifiers that have gone since.
        assert sum(int(n) for n in re.findall(r"calls=(\d+)", calls)) < 20
        assert [read.packet_id for read in await read_all(queue)] == [1, *range(1993, 2003)]


def tbmq(url: str) -> Any:
    return redis_py.Redis.from_url(url)


def write_as_tbmq(
    client: Any, client_id: str, packet_id: int, score: int, *, ttl_s: int = 604_800, **changes: Any
) -> None:
    """An entry as TBMQ 2.x leaves it, by other means than ours."""
    base = f"{{{client_id}}}"
    values = {
        "clientId": client_id,
        "topicName": "t/1",
        "time": NOW_US // 1000,
        "qos": 1,
        "packetId": packet_id,
        "packetType": "PUBLISH",
        "payload": base64.b64encode(b"%d" % packet_id).decode(),
        "retained": False,
        **changes,
    }
    key = f"{base}_messages_{packet_id}"
    client.set(key, json.dumps(values), pxat=NOW_US // 1000 + ttl_s * 1000 if ttl_s else None)
    client.zadd(f"{base}_messages", {key: score})
    client.set(f"{base}_last_packet_id", packet_id)


async def test_data_of_tbmq_are_taken_over(server: RedisServer) -> None:
    with tbmq(server.url) as client:
        for packet_id, score in ((65_534, 65_534), (65_535, 65_535), (1, 65_536), (2, 65_537)):
            write_as_tbmq(client, "c1", packet_id, score)
        changes = {"packetType": "PUBREL", "qos": 2, "msgExpiryInterval": 1}
        write_as_tbmq(client, "c1", 3, 65_538, ttl_s=0, **changes)
        client.delete("{c1}_messages_65535")
        client.set("{only/id}_last_packet_id", "0")
        write_as_tbmq(client, "ss_g_a/+{x}", 5, 5)
        client.delete("{ss_g_a/+{x}}_last_packet_id")
    async with opened(server.url, "tbmq") as queue:
        listed = {stats.client_id: stats async for stats in queue.clients()}
        assert sorted(listed) == ["c1", "only/id", "ss_g_a/+{x}"]
        assert (listed["c1"].publish_count, listed["c1"].pubrel_count) == (4, 1)
        assert listed["c1"].last_packet_id == 3
        assert listed["only/id"].last_packet_id == 0
        read = await read_all(queue, now_us=NOW_US + 2 * SECOND_US)
        assert [(one.packet_id, one.serial, one.state) for one in read] == [
            (65_534, 65_534, EntryState.PUBLISH),
            (1, 65_536, EntryState.PUBLISH),
            (2, 65_537, EntryState.PUBLISH),
            (3, 65_538, EntryState.PUBREL),
        ]
        assert server.command("ZCARD", "{c1}_messages") == 4
        await queue.take("c1", epoch=1)
        (result,) = await queue.append([entry()], now_us=NOW_US, limit=3)
        assert (result.serial, result.packet_id) == (65_539, 4)
        # The PUBREL that TBMQ wrote is not counted.
        assert [gone.packet_id for gone in result.trimmed] == [65_534]
        assert await payloads(queue, "ss_g_a/+{x}") == [b"5"]
        (shared,) = await queue.append([entry("ss_g_a/+{x}", b"new")], now_us=NOW_US, limit=10)
        # Where the last identifier was deleted, the newest entry's counts.
        assert (shared.serial, shared.packet_id) == (6, 6)


async def test_tbmq_can_read_what_we_wrote(server: RedisServer) -> None:
    now_ms = NOW_US // 1000
    async with opened(server.url, "tbmq") as queue:
        await queue.take("c1", epoch=1)
        await append(
            queue,
            entry(payload=b"\x00\xff", forget_at_us=NOW_US + 60 * SECOND_US),
            entry(payload=b"b", qos=2, expires_at_us=NOW_US + 60 * SECOND_US),
        )
        await queue.release("c1", [2], epoch=1)
    with tbmq(server.url) as client:
        keys = [b"{c1}_messages_1", b"{c1}_messages_2"]
        assert client.zrange("{c1}_messages", 0, -1, withscores=True) == [
            (keys[0], 1.0),
            (keys[1], 2.0),
        ]
        assert client.get("{c1}_last_packet_id") == b"2"
        first, second = (json.loads(client.get(key)) for key in keys)
        assert first == {
            "packetId": 1,
            "clientId": "c1",
            "topicName": "a/b",
            "time": now_ms,
            "qos": 1,
            "packetType": "PUBLISH",
            "payload": "AP8=",
            "retained": False,
        }
        assert (second["packetType"], second["packetId"], second["qos"]) == ("PUBREL", 2, 2)
        assert [client.pexpiretime(key) for key in keys] == [now_ms + 60_000, -1]
        assert {key.decode() for key in client.scan_iter("*")} == {
            "{c1}_messages",
            "{c1}_messages_1",
            "{c1}_messages_2",
            "{c1}_last_packet_id",
            "{c1}_perdure",
        }


async def test_a_message_that_expired_before_its_pubrec_is_still_released(
    server: RedisServer,
) -> None:
    async with opened(server.url, "tbmq") as queue:
        await queue.take("c1", epoch=1)
        await append(queue, entry(qos=2))
        server.command("DEL", "{c1}_messages_1")
        assert await queue.release("c1", [1], epoch=1) == 1
        (read,) = await read_all(queue)
        assert (read.packet_id, read.state, read.qos) == (1, EntryState.PUBREL, 2)


async def test_sweep_takes_what_redis_forgot_off_the_set(server: RedisServer) -> None:
    async with opened(server.url, "tbmq") as queue:
        await append(queue, *(entry(payload=b"%d" % n) for n in range(4)))
        server.command("DEL", "{c1}_messages_1", "{c1}_messages_3")
        assert await queue.sweep(now_us=NOW_US, limit=1) == 1
        assert await queue.sweep(now_us=NOW_US, limit=10) == 1
        assert server.command("ZCARD", "{c1}_messages") == 2


@both
async def test_a_prefix_keeps_queues_apart(server: RedisServer, layout: Layout) -> None:
    async with (
        opened(server.url, layout, prefix="one*:") as one,
        opened(server.url, layout, prefix="one*:two:") as two,
    ):
        await append(one, entry("c1"), entry("c2"))
        await append(two, entry("c3"))
        assert [stats.client_id async for stats in one.clients()] == ["c1", "c2"]
        assert [stats.client_id async for stats in two.clients()] == ["c3"]
