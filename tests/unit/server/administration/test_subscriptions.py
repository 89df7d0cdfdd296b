"""Subscriptions, who gets a topic, and shared groups."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.filters import PutFilter
from perdure.admin.records.messages import NewMessage, Publish
from perdure.admin.records.storage import DropGeneration, ListGenerations, ListShards, RotateLog
from perdure.admin.records.subscriptions import (
    ListSharedGroups,
    ListSubscriptions,
    MatchTopic,
    SessionSubscriptions,
)
from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.authenticate import AllStand
from perdure.broker.auth.grant import EVERYTHING
from perdure.model import StoredSession
from perdure.mqtt.packets import Subscribe, SubscribeFilter
from perdure.server.administration import subscriptions
from perdure.server.administration.listing import encode_cursor
from tests.unit.server.administration.scene import Scene, offline


class GrantsEverything(AllStand):
    """Logins come with rights of their own."""

    def grant_without_login(self, method: str) -> object | None:
        return EVERYTHING


@pytest.fixture
async def fleet(scene: Scene) -> Scene:
    """Connected and offline sessions with subscriptions of all kinds."""
    client = await scene.connect("a", expiry_s=60, subscribe="t/#")
    filters = [SubscribeFilter("t/1", 0), SubscribeFilter("$share/g/t/+", 2)]
    await client.send(Subscribe(2, filters))
    await offline(scene, "b", subscribe="t/+")
    await offline(scene, "c", subscribe="u")
    await scene.connect("d", subscribe="$share/g/t/+")
    await scene.connect("e")
    await offline(scene, "f", subscribe="$share/g/t/+")
    return scene


async def every(scene: Scene, request: Any) -> list[tuple[str, str]]:
    """Client ids and filters of all pages."""
    found: list[tuple[str, str]] = []
    for _ in range(50):
        page = await scene.ask(request)
        assert len(page["items"]) <= request.limit
        found += [(row["client_id"], row["filter"]) for row in page["items"]]
        if page["next_cursor"] is None:
            return found
        request = msgspec.structs.replace(request, cursor=page["next_cursor"])
    raise AssertionError("the pages have no end")


ALL = [
    ("a", "$share/g/t/+"),
    ("a", "t/#"),
    ("a", "t/1"),
    ("b", "t/+"),
    ("c", "u"),
    ("d", "$share/g/t/+"),
    ("f", "$share/g/t/+"),
]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("sessions", [1, 2, 500])
async def test_pages_are_the_whole(
    fleet: Scene, limit: int, sessions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "SESSIONS_PER_PAGE", sessions)
    assert await every(fleet, ListSubscriptions(limit=limit)) == ALL
    assert await every(fleet, ListSubscriptions(limit=limit, connected=True)) == [
        *ALL[:3],
        ALL[5],
    ]
    assert await every(fleet, ListSubscriptions(limit=limit, group="g", connected=False)) == [
        ALL[6]
    ]
    assert (
        await every(fleet, ListSubscriptions(limit=limit, filter_like="t/", group="")) == ALL[1:4]
    )
    assert await every(fleet, SessionSubscriptions(client_id="a", limit=limit)) == ALL[:3]
    matching = await every(fleet, MatchTopic(topic="t/1", limit=limit))
    assert matching == [*ALL[:3], ALL[5], ALL[3], ALL[6]]


async def test_the_matcher_is_the_one_that_delivers(fleet: Scene) -> None:
    assert await every(fleet, MatchTopic(topic="t", connected=True)) == [("a", "t/#")]
    assert await every(fleet, MatchTopic(topic="u", connected=False)) == [("c", "u")]
    assert await every(fleet, MatchTopic(topic="$SYS/x")) == []
    page = await fleet.ask(MatchTopic(topic="t/2"))
    allowed = {row["client_id"]: row["allowed"] for row in page["items"]}
    assert allowed == {"a": True, "d": True, "b": True, "f": True}


async def test_what_the_rules_say_of_a_client_that_is_away(
    fleet: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``explain`` does; None where its next login may grant more."""
    services = fleet.broker.services

    async def allowed(topic: str) -> dict[str, bool | None]:
        page = await fleet.ask(MatchTopic(topic=topic, connected=False))
        return {row["client_id"]: row["allowed"] for row in page["items"]}

    rules = AclRules.parse("topic read t/1\ntopic deny t/2\n", name="acl")
    monkeypatch.setattr(services, "authorizer", AclAuthorizer(rules, grants=True))
    assert await allowed("t/1") == {"b": True, "f": True}
    assert await allowed("t/2") == {"b": False, "f": False}
    monkeypatch.setattr(services, "standing", GrantsEverything())
    assert await allowed("t/1") == {"b": None, "f": None}
    assert await allowed("t/2") == {"b": False, "f": False}


async def test_only_those_are_opened_that_match(
    fleet: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many others are stored."""
    for number in range(20):
        await offline(fleet, f"other/{number}", subscribe=f"other/{number}/#")
    database = fleet.broker.services.database
    opened: list[str] = []
    open_session = database.open_session

    async def counted(client_id: str) -> StoredSession | None:
        opened.append(client_id)
        return await open_session(client_id)

    monkeypatch.setattr(database, "open_session", counted)
    assert await every(fleet, MatchTopic(topic="t/2", connected=False)) == [ALL[3], ALL[6]]
    assert opened == ["b", "f"]


async def test_pages_go_on_where_much_is_connected(
    fleet: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is short, or empty, where its looks are spent on what is shown already."""
    monkeypatch.setattr(subscriptions, "INDEX_STEPS_MAX", 1)
    monkeypatch.setattr(subscriptions, "INDEX_READS_MAX", 1)
    monkeypatch.setattr(subscriptions, "GATHERED_MAX", 1)
    found = await every(fleet, MatchTopic(topic="t/1", limit=2))
    assert found == [*ALL[:3], ALL[5], ALL[3], ALL[6]]


@pytest.mark.parametrize("cursor", ["\0\u0100", "\0é"])
async def test_a_cursor_of_another_list_is_refused_or_harmless(fleet: Scene, cursor: str) -> None:
    asked = MatchTopic(topic="t/1", cursor=encode_cursor(cursor))
    if cursor == "\0é":
        assert (await fleet.ask(asked))["items"] == []
    else:
        with pytest.raises(Refused, match="not one of this list"):
            await fleet.ask(asked)


async def test_a_stored_content_filter_is_no_part_of_the_topic(scene: Scene) -> None:
    await scene.ask(PutFilter(id="hot", filter='{"value": {"$gt": 30}}'))
    await offline(scene, "away", subscribe="$filter/hot/t/+")
    assert await every(scene, MatchTopic(topic="t/1")) == [("away", "$filter/hot/t/+")]
    assert await every(scene, MatchTopic(topic="$filter/hot/t/1")) == []


async def test_shared_groups(fleet: Scene) -> None:
    (group,) = (await fleet.ask(ListSharedGroups()))["items"]
    assert (group["group"], group["filter"]) == ("g", "t/+")
    assert (group["members"], group["members_durable"]) == (["a", "d"], 2)
    assert (group["lagging"], group["lag_messages"], group["lag_is_exact"]) == (False, 0, True)


async def test_generations_are_shown_and_the_oldest_is_dropped(fleet: Scene) -> None:
    await fleet.ask(Publish(messages=[NewMessage(topic="t/1"), NewMessage(topic="u")]))
    await fleet.ask(RotateLog())
    await fleet.ask(RotateLog())
    infos = (await fleet.ask(ListGenerations()))["items"]
    assert [info["state"] for info in infos] == ["closed", "closed", "current"]
    (shard,) = (await fleet.ask(ListShards()))["items"]
    assert (shard["shard"], shard["database"], shard["state"]) == (0, "log", "ok")
    for whole, part in (("message_count", "message_count"), ("streams", "stream_count")):
        assert shard[whole] == sum(info[part] for info in infos), whole
    assert (shard["generations"], shard["reason"]) == (3, "")
    assert shard["last_offset"] >= infos[0]["since_offset"]
    preview = await fleet.ask(DropGeneration(generation=1, dry_run=True))
    assert (preview["message_count"], preview["carried"]) == (2, None)
    assert preview["sessions_behind"] >= 2
    for number, reason in ((9, "there is no"), (3, "the current"), (2, "is older")):
        with pytest.raises(Refused, match=reason):
            await fleet.ask(DropGeneration(generation=number))
    assert len((await fleet.ask(ListGenerations()))["items"]) == 3
    done = await fleet.ask(DropGeneration(generation=1))
    assert done["carried"] >= 2, "b and c are owed a message each"
    assert [info["generation"] for info in (await fleet.ask(ListGenerations()))["items"]] == [2, 3]
    with pytest.raises(Refused, match="no database"):
        await fleet.ask(RotateLog(database="x"))
    with pytest.raises(Refused, match="no database"):
        await fleet.ask(ListShards(database="x"))
