"""Messages that administrators publish, retain and read."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from perdure.admin.problems import CODES, Refused, problem_of
from perdure.admin.records.messages import (
    DeleteRetained,
    GetRetained,
    ListRetained,
    NewMessage,
    Publish,
    PublishedList,
    ReadLog,
)
from perdure.admin.rights import Principal
from perdure.broker.publish.retained_room import RETAINED_OVERHEAD_BYTES
from perdure.config.schema import Config, LimitsConfig
from perdure.errors import MqttError, PerdureError, StorageUnavailable
from perdure.server.administration import messages, publishing
from tests.support.bounds import HANG_S
from tests.unit.server.administration.scene import Scene

BOB = Principal("bob", "operator")


async def publish(scene: Scene, *topics: str, key: str = "", **more: Any) -> list[Any]:
    request = Publish(
        messages=[NewMessage(topic=topic, **more) for topic in topics], idempotency_key=key
    )
    found: list[Any] = (await scene.ask(request))["items"]
    return found


async def read(scene: Scene, **asked: Any) -> list[str]:
    """Topics of all pages."""
    topics: list[str] = []
    cursor: str | None = ""
    for _ in range(100):
        page = await scene.ask(ReadLog(**{**asked, "cursor": cursor}))
        topics += [row["topic"] for row in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return topics
    raise AssertionError("the pages have no end")


async def test_what_is_published_is_delivered_and_on_disk(scene: Scene) -> None:
    client = await scene.connect("a", subscribe="t/#")
    client.written.clear()
    client.changed.clear()
    (done,) = await publish(scene, "t/1", payload_text="é", content_type="x/y")
    assert scene.broker.services.committer.log_sync.offset >= done["offset"] > 0
    await asyncio.wait_for(client.changed.wait(), HANG_S)
    assert "é".encode() in client.written
    (row,) = (await scene.ask(ReadLog(filter="t/+")))["items"]
    assert (row["offset"], row["payload_text"]) == (done["offset"], "é")
    assert base64.b64decode(row["payload"]) == "é".encode()
    assert (row["qos"], row["content_type"], row["publisher"]) == (1, "x/y", "")
    (record,) = scene.audited
    assert (record.operation, record.after["topics"]) == ("messages.publish", ["t/1"])
    assert "é" not in str(record), "no payload in an audit record"
    (ephemeral,) = await publish(scene, "t/2", qos=0)
    assert ephemeral["offset"] is None


async def test_a_key_publishes_once(scene: Scene) -> None:
    both = await asyncio.gather(
        publish(scene, "t/1", "t/2", key="k"), publish(scene, "t/1", "t/2", key="k")
    )
    assert both[0] == both[1] == await publish(scene, "t/1", "t/2", key="k")
    assert await read(scene) == ["t/1", "t/2"]
    with pytest.raises(Refused, match="used for other messages"):
        await publish(scene, "t/3", key="k")
    await scene.ask(Publish(messages=[NewMessage(topic="t/3")], idempotency_key="k"), BOB)
    assert await read(scene) == ["t/1", "t/2", "t/3"]


async def test_a_key_whose_request_failed_may_be_tried_again(scene: Scene) -> None:
    path = scene.broker.services.publish_path
    path.disk_full = True
    with pytest.raises(Refused) as caught:
        await publish(scene, "t/1", key="k")
    assert caught.value.problem.code == "storage_full"
    path.disk_full = False
    assert len(await publish(scene, "t/1", key="k")) == 1


async def test_a_request_that_was_forgotten_meanwhile_fails_as_itself(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    async def fail(*_given: object) -> PublishedList:
        await goes_on.wait()
        raise StorageUnavailable("gone")

    monkeypatch.setattr(publishing, "KEYS_MAX", 1)
    monkeypatch.setattr(publishing.PublishOperations, "_publish", fail)
    both = asyncio.gather(
        *(publish(scene, "t", key=key) for key in ("first", "second")), return_exceptions=True
    )
    asyncio.get_running_loop().call_soon(goes_on.set)
    assert [type(each) for each in await both] == [StorageUnavailable, StorageUnavailable]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "$SYS/x"},
        {"topic": "$audit/users/add"},
        {"topic": "a/+"},
        {"topic": "a\0b"},
        {"topic": "a", "payload": b"x", "payload_text": "x"},
        {"topic": "a", "content_type": "a\0b"},
        {"topic": "a", "response_topic": "a\0b"},
        {"topic": "a", "response_topic": "a/#"},
        {"topic": "a", "response_topic": ""},
        {"topic": "a", "user_properties": [("a", "\0")]},
    ],
)
async def test_all_or_none(scene: Scene, wrong: dict[str, Any]) -> None:
    request = Publish(messages=[NewMessage(topic="fine"), NewMessage(**wrong)])
    with pytest.raises((Refused, MqttError)) as caught:
        await scene.ask(request)
    assert CODES[problem_of(caught.value).code].status < 500, "whoever asked is wrong"
    assert await read(scene) == []
    assert [record.outcome for record in scene.audited] != ["ok"]


async def test_a_store_that_fails_is_told(scene: Scene) -> None:
    services = scene.broker.services
    services.committer.failure = StorageUnavailable("gone")
    with pytest.raises(PerdureError) as caught:
        await publish(scene, "t")
    assert "storage" in str(caught.value)
    services.committer.failure = None


async def test_retained(scene: Scene) -> None:
    await publish(scene, "a/1", "a/2", "b", retain=True, payload_text="x")
    page = await scene.ask(ListRetained(filter="a/#", limit=1))
    assert [row["topic"] for row in page["items"]] == ["a/1"]
    assert "payload" not in page["items"][0]
    page = await scene.ask(ListRetained(filter="a/#", cursor=page["next_cursor"]))
    assert [row["topic"] for row in page["items"]] == ["a/2"]
    assert (await scene.ask(GetRetained(topic="a/1")))["payload_text"] == "x"
    await scene.ask(DeleteRetained(topic="a/1"))
    for request in (DeleteRetained(topic="a/1"), GetRetained(topic="a/1")):
        with pytest.raises(Refused, match="nothing is retained"):
            await scene.ask(request)
    assert (await scene.ask(ListRetained()))["estimated_total"] == 2
    deleted = [one for one in scene.audited if one.operation == "retained.delete"]
    assert [(one.target, one.outcome) for one in deleted] == [("a/1", "ok"), ("a/1", "not_found")]
    assert deleted[0].before["payload_bytes"] == 1


async def retain(scene: Scene, *given: tuple[str, str]) -> None:
    """Publish retained messages, topic and text, in one request."""
    made = [NewMessage(topic=topic, payload_text=text, retain=True) for topic, text in given]
    await scene.ask(Publish(messages=made))


def retained(scene: Scene, *topics: str) -> bool:
    database = scene.database
    return database.retained_count == len(topics) and all(map(database.retained_size_of, topics))


TWO_RETAINED = Config(limits=LimitsConfig(retained_messages_max=2))
RETAINED_BYTES = Config(limits=LimitsConfig(retained_bytes_max=2 * (RETAINED_OVERHEAD_BYTES + 2)))


@pytest.mark.parametrize("scene", [TWO_RETAINED, RETAINED_BYTES], indirect=True)
async def test_what_a_request_clears_makes_room_for_what_it_retains(scene: Scene) -> None:
    await retain(scene, ("a", "1"), ("b", "1"))
    await retain(scene, ("a", ""), ("c", "1"))
    assert retained(scene, "b", "c")
    await retain(scene, ("b", ""), ("b", "1"), ("b", ""), ("d", "1"))
    assert retained(scene, "c", "d")
    for refused in (
        [("c", ""), ("c", "1"), ("e", "1")],
        [("e", ""), ("e", "1")],
        [("c", ""), ("c", ""), ("e", "1"), ("f", "1")],
    ):
        with pytest.raises(Refused, match="no room to retain it"):
            await retain(scene, *refused)
    assert retained(scene, "c", "d")


@pytest.mark.parametrize("scene", [TWO_RETAINED], indirect=True)
async def test_what_is_refused_whole_leaves_the_room_as_it_was(scene: Scene) -> None:
    await retain(scene, ("a", "1"), ("b", "1"))
    # Both are judged before anything is written: they share the open batch.
    refused, taken, late = await asyncio.gather(
        retain(scene, ("a", ""), ("c", "1"), ("d", "1")),
        retain(scene, ("b", ""), ("d", "1")),
        retain(scene, ("c", "1")),
        return_exceptions=True,
    )
    assert isinstance(refused, Refused)
    assert taken is None
    assert isinstance(late, Refused)
    assert retained(scene, "a", "d")


@pytest.mark.parametrize(("limit", "budget_us"), [(1, 10**9), (7, 10**9), (1000, 0)])
async def test_pages_of_the_log_are_all_of_it(
    scene: Scene, limit: int, budget_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"t/{number % 3}" for number in range(20)]
    for topic in topics:
        await publish(scene, topic)
    assert await read(scene, limit=limit) == topics
    assert await read(scene, limit=limit, filter="t/1") == ["t/1"] * 7
    (first, *_, last) = (await scene.ask(ReadLog()))["items"]
    bounds = {"from": str(first["offset"] + 1), "until": str(last["offset"] - 1)}
    asked = {"from_": bounds["from"], "until": bounds["until"], "limit": limit}
    assert await read(scene, **asked) == topics[1:-1]
    monkeypatch.setattr(messages, "PAGE_TIME_US", budget_us or -1)
    if not budget_us:
        page = await scene.ask(ReadLog())
        assert (page["items"], page["next_cursor"] is None) == ([], False)


@pytest.mark.parametrize(
    "asked",
    [{"cursor": "eA"}, {"from_": "soon"}, {"from_": "1h", "until": "2h"}, {"database": "other"}],
)
async def test_what_cannot_be_read(scene: Scene, asked: dict[str, str]) -> None:
    with pytest.raises(Refused):
        await scene.ask(ReadLog(**asked))
