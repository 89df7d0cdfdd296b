"""What an administrator sees of, and does to, a broker that runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.bans import AddBan, ListBans, RemoveBan
from perdure.admin.records.explain import ExplainSession
from perdure.admin.records.node import GetStats
from perdure.admin.records.sessions import (
    BulkDiscard,
    BulkKick,
    DiscardSession,
    GetSession,
    GiveSession,
    KickSession,
    ListSessions,
)
from perdure.admin.records.storage import RotateLog
from perdure.admin.records.subscriptions import ListSubscriptions
from perdure.clock import SystemClock
from perdure.config.units import parse_time
from perdure.errors import ConfigError, StorageUnavailable
from perdure.model import Will
from perdure.mqtt.packets import (
    Connect,
    Properties,
    Publish,
    Subscribe,
    SubscribeFilter,
)
from perdure.topic.proposal import Structure
from tests.support.bounds import HANG_S
from tests.support.past import FakePast
from tests.unit.server.administration.scene import Client, Scene, offline


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


async def show(scene: Scene, client_id: str) -> Any:
    return await scene.ask(GetSession(client_id=client_id))


async def is_missing(scene: Scene, request: Request[Any]) -> bool:
    """Whether an operation is refused because there is no such thing."""
    with pytest.raises(Refused) as caught:
        await scene.ask(request)
    return caught.value.problem.code == "not_found"


async def test_details_of_sessions_in_memory_and_stored(scene: Scene) -> None:
    client = await scene.connect("a", subscribe="t/#")
    assert (await client.send(Publish("t/1", b"x", 1, packet_id=9)))[0] in {0x32, 0x40}
    found = await show(scene, "a")
    assert found["state"] == "connected"
    assert [sub["filter"] for sub in found["subscriptions"]] == ["t/#"]
    assert found["live"]["inflight"] == found["owed_messages"] == 1
    await offline(scene, "b", subscribe="x")
    assert (await show(scene, "b"))["live"] is None
    assert await is_missing(scene, GetSession(client_id="nobody"))


async def test_explain(scene: Scene) -> None:
    await scene.connect("a", subscribe="t/#")
    await offline(scene, "b", subscribe="t/#")
    here = await scene.ask(ExplainSession(client_id="a", topic="t/1"))
    there = await scene.ask(ExplainSession(client_id="b", topic="x"))
    assert here["findings"][0]["code"] == "connected"
    assert there["verdict"] == "no_match"
    assert await is_missing(scene, ExplainSession(client_id="nobody", topic="t"))


async def test_a_replay_that_stands_in_the_archive_is_told(scene: Scene) -> None:
    """Which one, and how far it is; that it waits; whatever the client does meanwhile."""
    services = scene.broker.services
    services.past = past = FakePast(scene.scheduler)
    past.is_away = True
    scene.database.rotate(SystemClock().now_us())
    await (await scene.connect("p")).send(Publish("t/1", b"x", 1, packet_id=1))
    services.pipeline.run()
    scene.database.rotate(SystemClock().now_us())
    scene.database.drop_generation(1)
    scene.database.drop_generation(2)
    client = await scene.connect("a", expiry_s=60)
    wish = Properties(user_properties=(("replay-from", "0"),))
    await client.send(Subscribe(2, [SubscribeFilter("t/#", 1)], wish))
    for _ in range(2):
        (sub,) = (await show(scene, "a"))["subscriptions"]
        assert (sub["backfilling"], sub["given_offset"]) == ("archived", 0)
        (row,) = (await scene.ask(ListSubscriptions(client_id="a")))["items"]
        assert (row["backfilling"], row["given_offset"]) == ("archived", 0)
        findings = (await scene.ask(ExplainSession(client_id="a", topic="t/1")))["findings"]
        (found,) = [each for each in findings if each["code"] == "in_archive"]
        assert "of the archive behind offset 0" in found["detail"]
        assert "the archive is away: the store is away" in found["detail"]
        assert not found["ok"]
        client.close()
    # Without an archive it would be given what the log has.
    services.past = None
    (sub,) = (await show(scene, "a"))["subscriptions"]
    assert (sub["backfilling"], sub["given_offset"]) == ("recorded", 0)


async def test_discard_an_offline_session(scene: Scene) -> None:
    await offline(scene, "a", subscribe="t/#")
    assert await scene.ask(DiscardSession(client_id="a"))
    assert await is_missing(scene, GetSession(client_id="a"))
    assert await scene.database.open_session("a") is None
    assert await is_missing(scene, DiscardSession(client_id="a"))
    assert scene.broker.services.metrics.sessions_discarded == 1
    assert scene.broker.services.metrics.sessions_offline == 0


async def test_discard_a_connected_session_sends_its_will(scene: Scene) -> None:
    watcher = await scene.connect("w", subscribe="last/words")
    client = await scene.connect("a", expiry_s=60, will="last/words")
    watcher.written.clear()
    watcher.changed.clear()
    client.written.clear()
    assert await scene.ask(DiscardSession(client_id="a"))
    assert client.written[0] == 0xE0
    assert client.written[2] == 0x98
    await asyncio.wait_for(watcher.changed.wait(), HANG_S)
    assert b"last/words" in watcher.written
    assert await scene.database.open_session("a") is None
    assert await scene.rows() == [("w", "connected")]


async def test_kick_leaves_the_session(scene: Scene) -> None:
    client = await scene.connect("a", expiry_s=60)
    client.written.clear()
    assert await scene.ask(KickSession(client_id="a"))
    await asyncio.wait_for(client.changed.wait(), HANG_S)
    assert client.written[2] == 0x98
    assert await scene.rows() == [("a", "offline")]
    assert await is_missing(scene, KickSession(client_id="a"))


@pytest.mark.parametrize("connected", [False, True])
async def test_a_session_is_given_to_another_user(scene: Scene, *, connected: bool) -> None:
    if connected:
        client = await scene.connect("a", expiry_s=60, subscribe="t")
        client.written.clear()
    else:
        await offline(scene, "a", subscribe="t")
    tally = scene.broker.services.session_counts
    assert await scene.ask(GiveSession(client_id="a", username="ada"))
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
    assert await scene.ask(GiveSession(client_id="a", username=""))
    again = Client(scene.broker)
    assert (await again.send(Connect(5, False, 0, "a")))[2:4] == b"\x01\x00"


async def test_a_session_that_ends_with_its_connection_is_given_to_nobody(scene: Scene) -> None:
    await scene.connect("a")
    assert await is_missing(scene, GiveSession(client_id="a", username="ada"))
    assert await is_missing(scene, GiveSession(client_id="nobody", username="ada"))
    assert scene.broker.services.session_counts.sessions == 0


async def test_rotate(scene: Scene) -> None:
    assert (await scene.ask(RotateLog()))["generation"] == 2
    assert len(scene.database.generations()) == 2
    with pytest.raises(ConfigError, match="learns no topic structures"):
        await scene.ask(RotateLog(structure=Structure((10,), ("a/+",))))


async def test_nothing_is_changed_while_the_store_fails(scene: Scene) -> None:
    await offline(scene, "a")
    scene.broker.services.committer.writable = False
    assert (await scene.ask(GetStats()))["storage"] == "failed"
    with pytest.raises(StorageUnavailable):
        await scene.ask(DiscardSession(client_id="a"))
    with pytest.raises(StorageUnavailable):
        await scene.ask(RotateLog())
    scene.broker.services.committer.writable = True
    assert await scene.rows() == [("a", "offline")]


async def test_stats(scene: Scene) -> None:
    await scene.connect("a", subscribe="t")
    await offline(scene, "b")
    found = await scene.ask(GetStats())
    assert (found["sessions_connected"], found["sessions_offline"]) == (1, 1)
    assert (found["connections"], found["subscriptions"]) == (1, 1)
    assert (found["version"], found["storage"], found["generations"]) == ("1", "ok", 1)


async def test_subscriptions_of_offline_sessions_are_counted(scene: Scene) -> None:
    await scene.connect("a", subscribe="t")
    await offline(scene, "b", subscribe="t/#")
    await offline(scene, "c", subscribe="u")
    found = await scene.ask(GetStats())
    names = ("subscriptions", "subscriptions_connected", "subscriptions_offline")
    assert [found[name] for name in names] == [3, 1, 2]


async def test_bans(scene: Scene) -> None:
    client = await scene.connect("a", expiry_s=60)
    client.written.clear()
    client.changed.clear()
    row = await scene.ask(AddBan(kind="client_id", value="a", reason="why"))
    assert (row["closed"], row["reason"]) == (1, "why")
    assert client.written[2] == 0x98
    assert [row["value"] for row in (await scene.ask(ListBans()))["items"]] == ["a"]
    assert await scene.ask(RemoveBan(kind="client_id", value="a"))
    assert await is_missing(scene, RemoveBan(kind="client_id", value="a"))
    assert (await scene.ask(ListBans()))["items"] == []


async def test_status_says_whether_the_storage_takes_messages(scene: Scene) -> None:
    services = scene.broker.services

    async def told() -> tuple[object, object]:
        found = await scene.ask(GetStats())
        return found["storage"], found["storage_reason"]

    assert await told() == ("ok", "")
    services.publish_path.disk_full = True
    services.retention._budget.over = "too much"
    assert await told() == ("refusing", "too much")
    services.committer.writable = False
    services.committer.failure = StorageUnavailable("no disk")
    assert await told() == ("failed", "no disk")
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

    (row,) = (await scene.ask(ListSessions()))["items"]
    assert row["state"] == "offline"
    assert is_in(row["expires_at"], 60)
    details = await show(scene, "a")
    assert is_in(details["expires_at"], 60)
    assert is_in(details["will"]["due_at"], 30)
    explained = await scene.ask(ExplainSession(client_id="a", topic="t"))
    assert is_in(explained["findings"][0]["detail"].rpartition("kept until ")[2], 60)


async def test_several_at_once(scene: Scene) -> None:
    await scene.connect("a", expiry_s=60)
    await offline(scene, "b")
    done = await scene.ask(BulkKick(client_ids=["a", "b", "c"]))
    assert [one["action"] for one in done["items"]] == ["kicked", "not_found", "not_found"]
    done = await scene.ask(BulkDiscard(client_ids=["a", "b", "c"]))
    assert [one["action"] for one in done["items"]] == ["discarded", "discarded", "not_found"]
    assert await scene.rows() == []
    assert [(one.operation, one.target) for one in scene.audited] == [
        ("sessions.kick_all", "a,b,c"),
        ("sessions.discard_all", "a,b,c"),
    ]
    # To whom it was done, and to whom not.
    assert [[each["action"] for each in one.after] for one in scene.audited] == [
        ["kicked", "not_found", "not_found"],
        ["discarded", "discarded", "not_found"],
    ]
