"""Alarms and busy sessions of a broker that runs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from perdure.admin.records.watch import GetTop, ListAlarms, ListSlow
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import PUBACK, Ack, Publish, Subscribe, SubscribeFilter
from perdure.server.administration import watch
from tests.support.past import FakePast
from tests.unit.server.administration.scene import Scene


async def publish(scene: Scene, count: int) -> None:
    sender = await scene.connect("sender")
    for number in range(1, count + 1):
        await sender.send(Publish("t", b"x", 1, packet_id=number))
    scene.broker.services.pipeline.run()


async def top(scene: Scene, **asked: Any) -> list[str]:
    scene.wall.set_by_us += 0
    answer = await scene.ask(GetTop(**asked))
    return [row["client_id"] for row in answer["items"]]


async def test_top_sorts_and_bounds(scene: Scene) -> None:
    slow = await scene.connect("slow", subscribe="t")
    await scene.connect("idle")
    quick = await scene.connect("quick", subscribe="t")
    await publish(scene, 3)
    for number in (1, 2, 3):
        quick.connection.receive(encode(Ack(PUBACK, number), 5))
    answer = await scene.ask(GetTop(sort="inflight", limit=1))
    (row,) = answer["items"]
    assert (row["client_id"], row["inflight"], row["subs"]) == ("slow", 3, 1)
    assert answer["sessions"] == 4
    assert row["rate_out"] is None
    assert await top(scene, sort="client") == ["idle", "quick", "sender", "slow"]
    assert (await top(scene, sort="oldest"))[0] == "slow"
    assert sorted(await top(scene, sort="idle")) == ["idle", "quick", "sender", "slow"]
    # Another look within a second is the same one.
    slow.connection.connection_lost(None)
    assert len(await top(scene, sort="client")) == 4


@pytest.mark.parametrize("limit", [1, 3, 200])
async def test_the_first_are_those_of_all(
    scene: Scene, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SORTED_AT_ONCE_MAX", 2)
    for number, filters in enumerate((2, 0, 3, 1, 3)):
        client = await scene.connect(f"c{number}")
        for each in range(filters):
            await client.send(Subscribe(each + 1, [SubscribeFilter(f"t/{each}", 1)]))
    assert await top(scene, sort="subs", limit=limit) == ["c2", "c4", "c0", "c3", "c1"][:limit]
    assert (
        await top(scene, sort="client", limit=limit)
        == [f"c{number}" for number in range(5)][:limit]
    )


async def test_the_same_question_is_answered_once_in_a_second(scene: Scene) -> None:
    slow = await scene.connect("slow", subscribe="t")
    await publish(scene, 3)
    first = await scene.ask(GetTop(sort="inflight", limit=1))
    for number in (1, 2, 3):
        slow.connection.receive(encode(Ack(PUBACK, number), 5))
    assert (await scene.ask(GetTop(sort="inflight", limit=1)))["items"] == first["items"]
    # Another question is not, and has what is there now.
    assert (await scene.ask(GetTop(sort="pending")))["items"][0]["inflight"] == 0


async def test_rates_need_two_looks(scene: Scene, monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "LOOK_US", 0)
    await scene.connect("reader", subscribe="t")
    await scene.ask(GetTop())
    await publish(scene, 5)
    rows = {row["client_id"]: row for row in (await scene.ask(GetTop()))["items"]}
    assert rows["reader"]["rate_out"] > 0
    assert rows["sender"]["rate_out"] is None


async def test_slow_subscribers(scene: Scene) -> None:
    await scene.connect("slow", subscribe="t")
    await publish(scene, 2)
    assert (await scene.ask(ListSlow()))["items"] == []
    found = await scene.ask(ListSlow(lag_s=0.0, limit=1))
    assert [row["client_id"] for row in found["items"]] == ["slow"]
    assert found["estimated_total"] == 2


async def test_an_alarm_is_told_to_who_listens_and_who_comes_later(scene: Scene) -> None:
    alarms = scene.administration.alarms
    alarms.config = msgspec.structs.replace(
        alarms.config, raise_after_s=0, clear_after_s=0, disk_percent=0, refused_rate=1
    )
    reader = await scene.connect("reader", subscribe="$SYS/broker/alarms/#")
    alarms.look()
    reader.written.clear()
    scene.broker.services.metrics.refusals = {("connect", "0x87"): 1_000_000}
    alarms.look()
    scene.broker.services.pipeline.run()
    page = await scene.ask(ListAlarms())
    (alarm,) = page["items"]
    assert (alarm["name"], alarm["state"], alarm["threshold"]) == ("refused", "raised", 1.0)
    assert b"$SYS/broker/alarms/refused" in reader.written
    assert scene.broker.services.metrics.alarms == {("refused",): 1}

    alarms.look()
    assert (await scene.ask(ListAlarms()))["items"] == []
    (ended,) = (await scene.ask(ListAlarms(ended=True)))["items"]
    assert ended["state"] == "cleared"
    (told,) = scene.broker.services.sys.retained("$SYS/broker/alarms/#")
    assert json.loads(told.payload)["state"] == "cleared"
    late = await scene.connect("late")
    request = Subscribe(1, [SubscribeFilter("$SYS/broker/alarms/+", 0)])
    assert b"cleared" in await late.send(request) or b"cleared" in late.written


async def test_an_archive_that_is_waited_for_is_an_alarm(scene: Scene) -> None:
    alarms = scene.administration.alarms
    alarms.config = msgspec.structs.replace(alarms.config, raise_after_s=0, clear_after_s=0)
    scene.broker.services.past = past = FakePast(scene.scheduler)
    past.is_away = True
    alarms.look()
    (found,) = (await scene.ask(ListAlarms()))["items"]
    assert found["name"] == "archive_wait"
    assert found["message"] == "replays have waited 90 s for the archive: the store is away"
    past.is_away = False
    alarms.look()
    assert (await scene.ask(ListAlarms()))["items"] == []


async def test_a_store_that_takes_nothing_is_an_alarm(scene: Scene) -> None:
    alarms = scene.administration.alarms
    alarms.config = msgspec.structs.replace(alarms.config, raise_after_s=0)
    scene.broker.services.publish_path.disk_full = True
    alarms.look()
    found = {alarm["name"]: alarm for alarm in (await scene.ask(ListAlarms()))["items"]}
    assert "disk budget" in found["storage"]["message"]
