"""Filters under an id: what storing, changing and deleting one does to who subscribes with it."""

from __future__ import annotations

import json
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from perdure.broker.sessions.stored_filters import StoredFilters
from perdure.errors import ConfigError, FilterInUse, PerdureError, StorageConflict
from perdure.mqtt.packets import Properties, Publish, Suback
from perdure.mqtt.reason_codes import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID
from tests.support.content_oracle import fulfils
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim, until

HOT = {"t": {"$gt": 30}}
COLD = {"t": {"$lt": 10}}
NONE = {"$not": {}}


def ask(sim: SimBroker, work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine of the broker returns or raises."""
    answers: list[Any] = []

    async def run() -> None:
        try:
            answers.append(await work)
        except PerdureError as error:
            answers.append(error)

    assert sim.scheduler is not None
    sim.scheduler.run(run())
    if isinstance(answers[0], PerdureError):
        raise answers[0]
    return answers[0]


def put(sim: SimBroker, name: str, wanted: object) -> Any:
    return ask(sim, sim.live.services.filters.put(name, json.dumps(wanted)))


def delete(sim: SimBroker, name: str) -> Any:
    return ask(sim, sim.live.services.filters.delete(name))


def is_settled(sim: SimBroker, name: str) -> bool:
    return sim.live.services.stored_filters[name].settled


def degrees(*values: float) -> list[bytes]:
    return [json.dumps({"t": value}).encode() for value in values]


def publish(client: Client, *values: float) -> None:
    for payload in degrees(*values):
        client.deliver("a/t", payload)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_subscribes_by_id(version: int) -> None:
    sim = make_sim()
    put(sim, "hot", HOT)
    client, publisher = Client(sim, "c", version=version), Client(sim, "p")
    publisher.connect()
    client.connect()
    assert client.subscribe("$filter/hot/a/+", qos=1).reasons == [1]
    publish(publisher, 31, 5, 32)
    assert client.payloads() == degrees(31, 32)
    assert client.unsubscribe("a/+", "$filter/hot/a/+").packet_id
    publish(publisher, 33)
    assert client.payloads() == []


def test_the_same_topic_filter_by_several_ids() -> None:
    """They are subscriptions of their own, and what both want comes once."""
    sim = make_sim()
    put(sim, "hot", HOT)
    put(sim, "any", {})
    client, publisher = Client(sim, "c"), Client(sim, "p")
    publisher.connect()
    client.connect()
    client.subscribe("$filter/hot/a/t", "$filter/any/a/t", qos=1)
    publish(publisher, 31, 5)
    assert client.payloads() == degrees(31, 5)
    client.unsubscribe("$filter/any/a/t")
    publish(publisher, 31, 5)
    assert client.payloads() == degrees(31)


@pytest.mark.parametrize(
    "topic_filter",
    [
        "$filter/gone/a",
        "$filter/hot/",
        "$filter/hot",
        "$filter/hot/$share/g/a",
        "$filter/hot/$filter/hot/a",
        "$share/g/$replay/0/a",
        "$filters/+",
    ],
)
def test_what_is_no_such_subscription(topic_filter: str) -> None:
    sim = make_sim()
    put(sim, "hot", HOT)
    client = Client(sim, "c")
    client.connect()
    suback = client.subscribe(topic_filter)
    assert suback.reasons == [TOPIC_FILTER_INVALID]
    assert suback.properties.reason_string
    both = Properties(user_properties=(("filter", "{}"),))
    assert client.subscribe("$filter/hot/a", properties=both).reasons == [TOPIC_FILTER_INVALID]


def test_all_prefixes_in_their_order() -> None:
    sim = make_sim()
    put(sim, "hot", HOT)
    client, publisher = Client(sim, "c"), Client(sim, "p")
    publisher.connect()
    publish(publisher, 31, 5)
    client.connect()
    assert client.subscribe("$replay/0/$share/g/$filter/hot/a/#", qos=1).reasons == [1]
    publish(publisher, 32, 6)
    assert client.payloads() == degrees(31, 32)


def test_a_change_counts_from_its_moment_for_everybody() -> None:
    """Connected, not connected, and a group whose members are away: all of them, through a kill."""
    sim = make_sim()
    put(sim, "f", HOT)
    publisher = Client(sim, "p")
    publisher.connect()
    near, far, member = Client(sim, "near"), Client(sim, "far"), Client(sim, "member")
    for client, topic_filter in ((near, ""), (far, ""), (member, "$share/g/")):
        client.connect()
        client.subscribe(f"{topic_filter}$filter/f/a/t", qos=1)
    far.disconnect()
    member.disconnect()
    publish(publisher, 31, 5)
    assert put(sim, "f", COLD) == 2
    publish(publisher, 32, 6)
    until(sim, lambda: is_settled(sim, "f"))
    assert near.payloads() == degrees(31, 6)
    sim.kill()
    sim.start()
    for client in (far, member, near):
        client.connect()
    assert far.payloads() == degrees(31, 6)
    assert member.payloads() == degrees(31, 6)
    assert set(near.payloads()) <= set(degrees(6))  # a PUBACK that the kill has overtaken


def test_a_change_that_a_crash_cuts_short_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = make_sim()
    put(sim, "f", HOT)
    publisher = Client(sim, "p")
    publisher.connect()
    clients = [Client(sim, f"c{number}") for number in range(3)]
    for client in clients:
        client.connect()
        client.subscribe("$filter/f/a/t", qos=1)
        client.disconnect()
    publish(publisher, 31, 5)
    with monkeypatch.context() as held:
        held.setattr(StoredFilters, "_settle_later", lambda *_: None)
        put(sim, "f", COLD)
    assert not is_settled(sim, "f")
    with pytest.raises(StorageConflict):
        put(sim, "f", HOT)
    sim.kill()
    sim.start()
    clients[0].connect()  # before it is visited
    publisher.connect()
    publish(publisher, 32, 6)
    until(sim, lambda: is_settled(sim, "f"))
    for client in clients[1:]:
        client.connect()
    assert [client.payloads() for client in clients] == [degrees(31, 6)] * 3


def test_a_filter_in_use_stays() -> None:
    sim = make_sim()
    put(sim, "f", HOT)
    put(sim, "other", COLD)
    client = Client(sim, "c")
    client.connect()
    client.subscribe("$filter/f/a/t")
    for _ in range(2):
        with pytest.raises(FilterInUse, match="c subscribe"):
            delete(sim, "f")
        client.disconnect()
    assert delete(sim, "other")
    assert not delete(sim, "other")
    sim.kill()
    sim.start()
    assert list(sim.live.services.stored_filters) == ["f"]
    client.connect()
    client.unsubscribe("$filter/f/a/t")
    assert delete(sim, "f")
    assert client.subscribe("$filter/f/a/t").reasons == [TOPIC_FILTER_INVALID]


def test_what_cannot_be_stored() -> None:
    sim = make_sim()
    for name, text in (("a/b", "{}"), ("", "{}"), ("x" * 65, "{}"), ("a", "{"), ("a", "[" * 5000)):
        with pytest.raises(ConfigError):
            ask(sim, sim.live.services.filters.put(name, text))
    assert put(sim, "a", HOT) == 0
    assert put(sim, "a", HOT) == 0


def test_clients_do_not_write_where_filters_are() -> None:
    sim = make_sim()
    put(sim, "f", HOT)
    client = Client(sim, "c")
    client.connect()
    client.send(Publish("$filters/f", b"{}", 1, True, False, 5))
    until(sim, lambda: bool(client.received) or client.is_lost)
    reasons = [getattr(packet, "reason", None) for packet in client.received]
    assert reasons == [TOPIC_NAME_INVALID]
    sim.kill()
    sim.start()
    assert list(sim.live.services.stored_filters) == ["f"]


@pytest.mark.parametrize("seed", range(8))
def test_a_session_is_owed_what_its_filter_was_at_the_time(seed: int) -> None:
    """Random changes, absences and kills against a plain filter over all that was published."""
    chance = random.Random(seed)
    sim = make_sim()
    wanted: dict[str, Any] = HOT
    put(sim, "f", wanted)
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect()
    client.connect()
    client.subscribe("$filter/f/a/t", qos=2)
    owed: list[bytes] = []
    got: list[bytes] = []
    is_here = True
    for number in range(50):
        step = chance.random()
        if step < 0.6:
            document = {"t": chance.randrange(40), "n": number}
            publisher.deliver("a/t", json.dumps(document).encode(), qos=2)
            if fulfils(wanted, document):
                owed.append(json.dumps(document).encode())
        elif step < 0.75:
            wanted = chance.choice([HOT, COLD, NONE, {}])
            until(sim, lambda: is_settled(sim, "f"))
            put(sim, "f", wanted)
        elif is_here:
            got += client.payloads()
            client.disconnect()
            is_here = False
        elif step < 0.9:
            client.connect()
            is_here = True
        else:
            sim.kill()
            sim.start()
            publisher.connect()
    if not is_here:
        client.connect()
    got += client.payloads()
    assert got == owed


def test_a_suback_of_3_1_1_says_nothing() -> None:
    sim = make_sim()
    client = Client(sim, "c", version=4)
    client.connect()
    suback = client.subscribe("$filter/gone/a")
    assert isinstance(suback, Suback)
    assert suback.reasons == [0x80]
