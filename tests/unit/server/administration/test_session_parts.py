"""What a session holds, and subscriptions that are made for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.messages import Publish
from perdure.admin.records.session_parts import (
    ListAwaitingRelease,
    ListInflight,
    ListPending,
    SubscribeSession,
    UnsubscribeSession,
)
from perdure.admin.records.sessions import GetSession
from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import PUBACK, Ack, Connect, Properties
from perdure.mqtt.packets import Publish as PublishPacket
from tests.unit.server.administration import scene as scenes
from tests.unit.server.administration.scene import Client, Scene, offline


async def publish(scene: Scene, *topics: str, qos: int = 1, retain: bool = False) -> None:
    about = {"qos": qos, "retain": retain}
    messages = [{"topic": each, "payload_text": each, **about} for each in topics]
    await scene.ask(msgspec.convert({"messages": messages}, Publish))


async def all_of(scene: Scene, request: Request[Any]) -> list[dict[str, Any]]:
    """The items of all pages."""
    found = []
    while True:
        page = await scene.ask(request)
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        request = msgspec.structs.replace(request, cursor=page["next_cursor"])


async def resume(scene: Scene, client_id: str, *, window: int = 100) -> Client:
    client = Client(scene.broker)
    properties = Properties(session_expiry_interval=60, receive_maximum=window)
    connect = Connect(5, False, 0, client_id, properties=properties)
    assert (await client.send(connect))[0] == 0x20
    return client


async def topics(scene: Scene, kind: Any, client_id: str, *, limit: int = 2) -> list[str]:
    return [row["topic"] for row in await all_of(scene, kind(client_id=client_id, limit=limit))]


async def test_in_flight_and_pending(scene: Scene) -> None:
    await offline(scene, "c", subscribe="t/#")
    await publish(scene, *(f"t/{number}" for number in range(7)))
    assert await topics(scene, ListInflight, "c") == []
    assert await topics(scene, ListPending, "c") == [f"t/{number}" for number in range(7)]
    client = await resume(scene, "c", window=3)
    while scene.broker.services.registry.live["c"].outbound.inflight.count < 3:
        client.changed.clear()
        await client.changed.wait()
    sent = await all_of(scene, ListInflight(client_id="c", limit=2))
    assert [(row["topic"], row["packet_id"], row["awaits"]) for row in sent] == [
        ("t/0", 1, "PUBACK"),
        ("t/1", 2, "PUBACK"),
        ("t/2", 3, "PUBACK"),
    ]
    assert await topics(scene, ListPending, "c") == ["t/3", "t/4", "t/5", "t/6"]
    # An acknowledgement out of order leaves a hole, and makes room for one more.
    await client.send(Ack(PUBACK, 2))
    assert await topics(scene, ListInflight, "c") == ["t/0", "t/2", "t/3"]
    assert await topics(scene, ListPending, "c") == ["t/4", "t/5", "t/6"]
    with pytest.raises(Refused, match="the cursor is not one of this list"):
        await scene.ask(ListPending(client_id="c", cursor="eDp5"))
    with pytest.raises(Refused, match="there is no session 'nobody'"):
        await scene.ask(ListPending(client_id="nobody"))


async def test_of_one_that_keeps_up_the_log_is_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await scene.connect("c", subscribe="t/#")
    await publish(scene, "t/1", "t/2")
    assert await topics(scene, ListInflight, "c") == ["t/1", "t/2"]
    for number in (1, 2):
        client.connection.receive(encode(Ack(PUBACK, number), 5))
    scene.broker.services.pipeline.run()

    async def read(*_args: object, **_named: object) -> None:
        raise AssertionError("the log is read")

    monkeypatch.setattr(scene.broker.services.database, "read", read)
    assert await topics(scene, ListInflight, "c") == []
    assert await topics(scene, ListPending, "c") == []


async def test_a_page_looks_at_so_many_only(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from perdure.server.administration import session_parts

    monkeypatch.setattr(session_parts, "LOOKED_MAX", 3)
    await offline(scene, "c", subscribe="t/#")
    await publish(scene, *(f"t/{number}" for number in range(8)))
    first = await scene.ask(ListPending(client_id="c", limit=100))
    assert len(first["items"]) == 3
    assert await topics(scene, ListPending, "c", limit=100) == [f"t/{n}" for n in range(8)]


async def test_qos_2_of_the_client(scene: Scene) -> None:
    client = await scene.connect("c", expiry_s=60)
    for packet_id in (5, 3):
        assert await client.send(PublishPacket("x", b"", 2, packet_id=packet_id))
    found = await all_of(scene, ListAwaitingRelease(client_id="c", limit=1))
    assert [row["packet_id"] for row in found] == [3, 5]


async def subscriptions(scene: Scene, client_id: str) -> dict[str, int]:
    shown = await scene.ask(GetSession(client_id=client_id))
    return {each["filter"]: each["qos"] for each in shown["subscriptions"]}


@pytest.mark.parametrize("connected", [True, False])
async def test_a_subscription_is_made_and_ended(scene: Scene, connected: bool) -> None:
    await publish(scene, "t/kept", retain=True)
    if connected:
        await scene.connect("c", expiry_s=60)
    else:
        await offline(scene, "c")
    made = await scene.ask(SubscribeSession(client_id="c", filter="t/#", identifier=7))
    assert (made["filter"], made["qos"], made["identifier"]) == ("t/#", 1, 7)
    assert scene.audited[-1].after["filter"] == "t/#"
    changed = await scene.ask(SubscribeSession(client_id="c", filter="t/#", qos=2))
    assert (changed["qos"], await subscriptions(scene, "c")) == (2, {"t/#": 2})
    metrics = scene.broker.services.metrics
    assert metrics.subscriptions + metrics.subscriptions_offline == 1
    await publish(scene, "t/1")
    ended = await scene.ask(UnsubscribeSession(client_id="c", filter="t/#"))
    assert ended["action"] == "unsubscribed"
    assert await subscriptions(scene, "c") == {}
    assert metrics.subscriptions + metrics.subscriptions_offline == 0
    await publish(scene, "t/2")
    with pytest.raises(Refused, match="does not subscribe"):
        await scene.ask(UnsubscribeSession(client_id="c", filter="t/#"))
    if not connected:
        # It was owed before the subscription ended.
        assert await topics(scene, ListPending, "c") == ["t/1"]
        client = await resume(scene, "c")
        while b"t/1" not in client.written:
            client.changed.clear()
            await client.changed.wait()
        assert b"t/2" not in client.written


async def test_one_made_for_a_session_that_is_away_is_there_when_it_comes_back(
    scene: Scene,
) -> None:
    await publish(scene, "t/kept", retain=True)
    await offline(scene, "c")
    await scene.ask(SubscribeSession(client_id="c", filter="t/#"))
    await publish(scene, "t/new")
    client = await resume(scene, "c")
    while not (b"t/new" in client.written and b"t/kept" in client.written):
        client.changed.clear()
        await client.changed.wait()


async def test_what_waits_for_one_that_is_away_is_listed(scene: Scene) -> None:
    """Without a retained message that matches nothing has to come before it."""
    await publish(scene, "other/kept", retain=True)
    await offline(scene, "c")
    await scene.ask(SubscribeSession(client_id="c", filter="t/#"))
    await publish(scene, "t/new")
    assert await topics(scene, ListPending, "c") == ["t/new"]
    detail = await scene.ask(GetSession(client_id="c"))
    assert (detail["owed_messages"], detail["owed_is_exact"]) == (1, True)


async def test_one_that_is_changed_before_its_client_comes_gives_all_once(scene: Scene) -> None:
    await publish(scene, "t/kept", retain=True)
    await offline(scene, "c")
    await scene.ask(SubscribeSession(client_id="c", filter="t/#"))
    await publish(scene, "t/1")
    detail = await scene.ask(GetSession(client_id="c"))
    assert not detail["owed_is_exact"]
    await scene.ask(SubscribeSession(client_id="c", filter="t/#", qos=1, retain_handling=2))
    await publish(scene, "t/2")
    client = await resume(scene, "c")
    while b"t/2" not in client.written:
        client.changed.clear()
        await client.changed.wait()
    for topic in (b"t/kept", b"t/1", b"t/2"):
        assert client.written.count(bytes((0, len(topic))) + topic) == 1


@pytest.mark.parametrize("connected", [True, False])
async def test_limits_and_rules_of_a_client_hold(
    scene: Scene, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = scene.broker.services
    if connected:
        await scene.connect("c", expiry_s=60)
    else:
        await offline(scene, "c")
    rules = AclRules.parse("topic read a\ntopic read b\n", name="acl")
    monkeypatch.setattr(services, "authorizer", AclAuthorizer(rules))
    few = msgspec.structs.replace(services.session_config, subscriptions_max=1)
    monkeypatch.setattr(services, "session_config", few)
    for topic_filter, code in (("secret", "forbidden"), ("a/#/b", "mqtt_error")):
        with pytest.raises(Refused) as error:
            await scene.ask(SubscribeSession(client_id="c", filter=topic_filter))
        assert error.value.problem.code == code
    await scene.ask(SubscribeSession(client_id="c", filter="a"))
    with pytest.raises(Refused, match="too many subscriptions"):
        await scene.ask(SubscribeSession(client_id="c", filter="b"))
    assert await subscriptions(scene, "c") == {"a": 1}
    assert services.metrics.limit_refusals == {("session.subscriptions_max",): 1}


@pytest.mark.parametrize("connected", [True, False])
async def test_what_the_broker_is_told_not_to_have(
    scene: Scene, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = scene.broker.services
    if connected:
        await scene.connect("c", expiry_s=60)
    else:
        await offline(scene, "c")
    plain = msgspec.structs.replace(
        services.mqtt_config,
        wildcard_subscription_available=False,
        subscription_identifier_available=False,
    )
    monkeypatch.setattr(services, "mqtt_config", plain)
    for topic_filter, identifier, code in (("a/#", 0, 0xA2), ("a", 7, 0xA1)):
        with pytest.raises(Refused) as error:
            await scene.ask(
                SubscribeSession(client_id="c", filter=topic_filter, identifier=identifier)
            )
        assert error.value.problem.details == {"reason_code": code}


async def test_a_shared_one_needs_the_client(scene: Scene) -> None:
    await offline(scene, "c")
    with pytest.raises(Refused, match="must be handed on"):
        await scene.ask(SubscribeSession(client_id="c", filter="$share/g/t"))
    client = await resume(scene, "c")
    await scene.ask(SubscribeSession(client_id="c", filter="$share/g/t"))
    await publish(scene, "t")
    while b"\x00\x01t" not in client.written:
        client.changed.clear()
        await client.changed.wait()
    assert scenes.ADMIN.name == scene.audited[-2].principal
