"""What an administrator sees of, and does to, a broker that runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import structlog

from perdure.broker.auth.authenticate import AnonymousPolicy, EnhancedMethods
from perdure.broker.auth.authorize import AllowAll
from perdure.broker.broker import Broker
from perdure.broker.connection.connection import Connection
from perdure.broker.runtime.stream import PeerInfo
from perdure.clock import Clock, SystemClock
from perdure.config.schema import Config
from perdure.config.units import parse_time
from perdure.errors import ConfigError, StorageUnavailable
from perdure.model import Will
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Publish,
    Subscribe,
    SubscribeFilter,
)
from perdure.observe import Metrics
from perdure.server.admin import Row
from perdure.server.admin_handler import BrokerAdmin
from perdure.server.bans import BanKeeper
from perdure.server.explain import ANY
from perdure.server.scheduler import LoopScheduler
from perdure.storage.memory import MemoryDatabase
from perdure.topic.proposal import Structure

PEER = PeerInfo("tcp", "tcp", "127.0.0.1", 5, loopback=True)


class Client:
    """A connection of the broker and the bytes that it wrote."""

    def __init__(self, broker: Broker) -> None:
        self.written = bytearray()
        self.changed = asyncio.Event()
        self.connection: Connection = broker.connection(self, PEER)

    def write(self, data: bytes) -> None:
        self.written += data
        self.changed.set()

    def close(self) -> None:
        self.connection.connection_lost(None)

    def abort(self) -> None:
        self.connection.connection_lost(None)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write_buffer_size(self) -> int:
        return 0

    async def send(self, packet: Packet) -> bytes:
        """Send a packet and wait for bytes."""
        self.written.clear()
        self.changed.clear()
        self.connection.receive(encode(packet, 5))
        await asyncio.wait_for(self.changed.wait(), 10)
        return bytes(self.written)


class Wall(Clock):
    """The machine's clock, which can be set."""

    def __init__(self) -> None:
        self.set_by_us = 0

    def now_us(self) -> int:
        return SystemClock().now_us() + self.set_by_us

    def monotonic_us(self) -> int:
        return SystemClock().monotonic_us()


class Scene:
    """A broker on a memory database, and its admin handler."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.errors: list[BaseException] = []
        self.wall = Wall()
        self.scheduler = LoopScheduler(asyncio.get_running_loop(), self.errors.append)
        self.broker = Broker(
            Config(),
            self.database,
            scheduler=self.scheduler,
            clock=self.wall,
            chance=random.Random(1),
            authenticator=AnonymousPolicy(),
            methods=EnhancedMethods(),
            authorizer=AllowAll(),
            metrics=Metrics(),
            log=structlog.get_logger(),
            version="1",
        )
        self.admin = BrokerAdmin(
            self.broker.services,
            version="1",
            started_us=SystemClock().now_us(),
            bans=BanKeeper(self.broker.services.ban_enforcer, None, SystemClock()),
        )

    async def connect(
        self, client_id: str, *, expiry_s: int = 0, subscribe: str = "", will: str = ""
    ) -> Client:
        client = Client(self.broker)
        properties = Properties(session_expiry_interval=expiry_s)
        last = Will(will, b"gone", 1, False) if will else None
        connect = Connect(5, True, 0, client_id, will=last, properties=properties)
        assert (await client.send(connect))[0] == 0x20
        if subscribe:
            request = Subscribe(1, [SubscribeFilter(subscribe, 1)])
            assert (await client.send(request))[0] == 0x90
        return client

    async def rows(self, prefix: str = "", state: str = "") -> list[tuple[str, str]]:
        rows = self.admin.sessions(prefix=prefix, state=state)
        return [(row["client_id"], row["state"]) async for row in rows]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = Scene()
    await found.broker.start()
    yield found
    found.broker.stop_taking(0x8B)
    await found.broker.finish()
    await found.scheduler.close()
    assert found.errors == []


async def offline(scene: Scene, client_id: str, *, subscribe: str = "") -> None:
    client = await scene.connect(client_id, expiry_s=60, subscribe=subscribe)
    client.connection.receive(encode(Disconnect(0), 5))
    # The end of the turn, in which the session is written.
    scene.broker.services.pipeline.run()


async def test_sessions_in_memory_stand_in_their_places(scene: Scene) -> None:
    await offline(scene, "b")
    await offline(scene, "d")
    for client_id in ("a", "c", "e"):
        await scene.connect(client_id)
    await scene.connect("f", expiry_s=60)
    assert await scene.rows() == [
        ("a", "connected"),
        ("b", "offline"),
        ("c", "connected"),
        ("d", "offline"),
        ("e", "connected"),
        ("f", "connected"),
    ]
    assert await scene.rows("c") == [("c", "connected")]
    assert await scene.rows(state="offline") == [("b", "offline"), ("d", "offline")]
    assert [client_id for client_id, _ in await scene.rows(state="connected")] == list("acef")


async def show(scene: Scene, client_id: str) -> Row:
    found = await scene.admin.session(client_id)
    assert found is not None
    return found


async def test_details_of_sessions_in_memory_and_stored(scene: Scene) -> None:
    client = await scene.connect("a", subscribe="t/#")
    assert (await client.send(Publish("t/1", b"x", 1, packet_id=9)))[0] in {0x32, 0x40}
    found = await show(scene, "a")
    assert found["state"] == "connected"
    assert [sub["filter"] for sub in found["subscriptions"]] == ["t/#"]
    assert found["live"]["inflight"] == found["owed_messages"] == 1
    await offline(scene, "b", subscribe="x")
    assert "live" not in await show(scene, "b")
    assert await scene.admin.session("nobody") is None


async def test_explain(scene: Scene) -> None:
    await scene.connect("a", subscribe="t/#")
    await offline(scene, "b", subscribe="t/#")
    here = await scene.admin.explain("a", "t/1", ANY)
    there = await scene.admin.explain("b", "x", ANY)
    assert here is not None
    assert there is not None
    assert here["findings"][0]["code"] == "connected"
    assert there["verdict"] == "no_match"
    assert await scene.admin.explain("nobody", "t", ANY) is None


async def test_discard_an_offline_session(scene: Scene) -> None:
    await offline(scene, "a", subscribe="t/#")
    assert await scene.admin.discard("a")
    assert await scene.admin.session("a") is None
    assert await scene.database.open_session("a") is None
    assert not await scene.admin.discard("a")
    assert scene.broker.services.metrics.sessions_discarded == 1
    assert scene.broker.services.metrics.sessions_offline == 0


async def test_discard_a_connected_session_sends_its_will(scene: Scene) -> None:
    watcher = await scene.connect("w", subscribe="last/words")
    client = await scene.connect("a", expiry_s=60, will="last/words")
    watcher.written.clear()
    watcher.changed.clear()
    client.written.clear()
    assert await scene.admin.discard("a")
    assert client.written[0] == 0xE0
    assert client.written[2] == 0x98
    await asyncio.wait_for(watcher.changed.wait(), 10)
    assert b"last/words" in watcher.written
    assert await scene.database.open_session("a") is None
    assert await scene.rows() == [("w", "connected")]


async def test_kick_leaves_the_session(scene: Scene) -> None:
    client = await scene.connect("a", expiry_s=60)
    client.written.clear()
    assert await scene.admin.kick("a")
    await asyncio.wait_for(client.changed.wait(), 10)
    assert client.written[2] == 0x98
    assert await scene.rows() == [("a", "offline")]
    assert not await scene.admin.kick("a")


@pytest.mark.parametrize("connected", [False, True])
async def test_a_session_is_given_to_another_user(scene: Scene, *, connected: bool) -> None:
    if connected:
        client = await scene.connect("a", expiry_s=60, subscribe="t")
        client.written.clear()
    else:
        await offline(scene, "a", subscribe="t")
    tally = scene.broker.services.session_counts
    assert await scene.admin.set_owner("a", "ada")
    if connected:
        assert client.written[2] == 0x98
    assert await scene.rows() == [("a", "offline")]
    stored = await scene.database.open_session("a")
    assert stored is not None
    assert (stored.record.username, stored.record.method) == ("ada", "password")
    assert stored.record.subscription_count == 1
    assert (tally.of_user(""), tally.of_user("ada"), tally.sessions) == (0, 1, 1)
    # Who held it may not have it any more (0x87).
    refused = Client(scene.broker)
    assert (await refused.send(Connect(5, False, 0, "a")))[3] == 0x87
    assert await scene.admin.set_owner("a", "")
    again = Client(scene.broker)
    assert (await again.send(Connect(5, False, 0, "a")))[2:4] == b"\x01\x00"


async def test_a_session_that_ends_with_its_connection_is_given_to_nobody(scene: Scene) -> None:
    await scene.connect("a")
    assert not await scene.admin.set_owner("a", "ada")
    assert not await scene.admin.set_owner("nobody", "ada")
    assert scene.broker.services.session_counts.sessions == 0


async def test_rotate(scene: Scene) -> None:
    assert (await scene.admin.rotate(None))["generation"] == 2
    assert len(scene.database.generations()) == 2
    with pytest.raises(ConfigError, match="learns no topic structures"):
        await scene.admin.rotate(Structure((10,), ("a/+",)))


async def test_nothing_is_changed_while_the_store_fails(scene: Scene) -> None:
    await offline(scene, "a")
    scene.broker.services.committer.writable = False
    assert scene.admin.stats()["storage"] == "failed"
    with pytest.raises(StorageUnavailable):
        await scene.admin.discard("a")
    with pytest.raises(StorageUnavailable):
        await scene.admin.rotate(None)
    scene.broker.services.committer.writable = True
    assert await scene.rows() == [("a", "offline")]


async def test_stats(scene: Scene) -> None:
    await scene.connect("a", subscribe="t")
    await offline(scene, "b")
    found = scene.admin.stats()
    assert (found["sessions_connected"], found["sessions_offline"]) == (1, 1)
    assert (found["connections"], found["subscriptions"]) == (1, 1)
    assert (found["version"], found["storage"], found["generations"]) == ("1", "ok", 1)


async def test_subscriptions_of_offline_sessions_are_counted(scene: Scene) -> None:
    await scene.connect("a", subscribe="t")
    await offline(scene, "b", subscribe="t/#")
    await offline(scene, "c", subscribe="u")
    found = scene.admin.stats()
    names = ("subscriptions", "subscriptions_connected", "subscriptions_offline")
    assert [found[name] for name in names] == [3, 1, 2]


async def test_bans(scene: Scene) -> None:
    client = await scene.connect("a", expiry_s=60)
    client.written.clear()
    client.changed.clear()
    row = await scene.admin.ban("client_id", "a", reason="why", until_us=0)
    assert (row["closed"], row["reason"]) == (1, "why")
    assert client.written[2] == 0x98
    assert [row["value"] for row in scene.admin.bans()] == ["a"]
    assert await scene.admin.unban("client_id", "a") is not None
    assert await scene.admin.unban("client_id", "a") is None
    assert scene.admin.bans() == []


async def test_status_says_whether_the_storage_takes_messages(scene: Scene) -> None:
    services = scene.broker.services

    def told() -> tuple[object, object]:
        found = scene.admin.stats()
        return found["storage"], found["storage_reason"]

    assert told() == ("ok", "")
    services.publish_path.disk_full = True
    services.retention._budget.over = "too much"
    assert told() == ("refusing", "too much")
    services.committer.writable = False
    services.committer.failure = StorageUnavailable("no disk")
    assert told() == ("failed", "no disk")
    services.committer.writable = True
    services.committer.failure = None


@pytest.mark.parametrize("set_by_s", [-7 * 86_400, 7 * 86_400])
async def test_deadlines_are_told_by_the_wall_clock(scene: Scene, set_by_s: int) -> None:
    """Sessions end by the broker's own time; people read the time of day."""
    client = Client(scene.broker)
    will = Will("gone", b"", 1, delay_s=30)
    properties = Properties(session_expiry_interval=60)
    await client.send(Connect(5, True, 0, "a", will=will, properties=properties))
    await client.send(Subscribe(1, [SubscribeFilter("t", 1)]))
    client.connection.connection_lost(None)
    scene.broker.services.pipeline.run()
    scene.wall.set_by_us = set_by_s * 1_000_000

    def is_in(text: str, seconds: int) -> bool:
        return abs(parse_time(text, 0) - scene.wall.now_us() - seconds * 1_000_000) < 10_000_000

    (row,) = [row async for row in scene.admin.sessions(prefix="", state="")]
    assert row["state"] == "offline"
    assert is_in(row["expires_at"], 60)
    details = await show(scene, "a")
    assert is_in(details["expires_at"], 60)
    assert is_in(details["will"]["due_at"], 30)
    explained = await scene.admin.explain("a", "t", ANY)
    assert explained is not None
    assert is_in(explained["findings"][0]["detail"].rpartition("kept until ")[2], 60)
