"""The registry on real Redis servers: one, and a cluster."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any
from zlib import crc32

import pytest

from perdure.errors import ConfigError
from perdure.registry import Channel, DeviceTransport, Registry, Upkeep, filter_id_of, patterns
from perdure.registry.device import iso
from perdure.storage.redis import Command
from tests import servers
from tests.support.content_oracle import fulfils

pytestmark = pytest.mark.redis
NOW_US = 1_700_000_000_000_000
TASKS = Channel("myapp", "task")
HIGH = {"priority": {"$eq": "high"}}
PUMP = DeviceTransport("pump", "mqtt")
PHONE = DeviceTransport("phone", "websockets-transport")


@pytest.fixture(params=["single", "cluster"])
async def registry(request: pytest.FixtureRequest) -> AsyncIterator[Registry]:
    server = servers.redis_cluster() if request.param == "cluster" else servers.redis()
    prefix = f"t{secrets.token_hex(4)}:"
    registry = await Registry.open(server.url, partitions=16, prefix=prefix)
    yield registry
    await registry.close()


async def raw(registry: Registry, *args: str | int | bytes, key: bytes) -> Any:
    return await registry.client.call(Command((args[0], key, *args[1:]), key))


async def test_unfiltered_and_filtered(registry: Registry) -> None:
    await registry.subscribe(PUMP, TASKS)
    filter_id = await registry.subscribe(PHONE, TASKS, where=json.dumps(HIGH))
    change = Channel("myapp", "task", "user123", "task-456")
    assert (await registry.wanting(change, {"priority": "low"})).devices == [PUMP]
    assert (await registry.wanting(change, {"priority": "high"})).devices == [PHONE, PUMP]
    assert list(await registry.filters(TASKS)) == [filter_id]
    assert await registry.subscribers(TASKS, filter_id) == [PHONE]
    assert await registry.unsubscribe(PHONE, TASKS, filter_id)
    assert not await registry.unsubscribe(PHONE, TASKS, filter_id)
    assert await registry.filters(TASKS) == {}
    assert (await registry.wanting(change, {"priority": "high"})).devices == [PUMP]


async def test_a_named_filter_changes_for_all(registry: Registry) -> None:
    with pytest.raises(ConfigError):
        await registry.subscribe(PUMP, TASKS, filter_id="f")
    await registry.set_filter(TASKS, "f", json.dumps(HIGH))
    assert await registry.subscribe(PUMP, TASKS, filter_id="f") == "f"
    await registry.set_filter(TASKS, "f", '{"priority": "low"}')
    assert (await registry.wanting(TASKS, {"priority": "low"})).devices == [PUMP]
    assert await registry.delete_filter(TASKS, "f")
    assert (await registry.wanting(TASKS, {"priority": "low"})).devices == []
    assert await registry.subscriptions("pump") == []
    for filter_id, text in (("a:b", "{}"), ("", "{}"), ("f", "{")):
        with pytest.raises(ConfigError):
            await registry.set_filter(TASKS, filter_id, text)


async def test_what_others_have_written_by_hand(registry: Registry) -> None:
    """The seed's own layout, with a filter that nobody can read among them."""
    keys = registry.keys
    await raw(registry, "SADD", "d1|websockets-transport", key=keys.subscription(TASKS))
    await raw(registry, "SADD", "d2|mqtt", key=keys.subscription(TASKS, "abc123"))
    await raw(registry, "HSET", "abc123", json.dumps(HIGH), key=keys.filters(TASKS))
    await raw(registry, "HSET", "odd", '{"a": {"$near": 1}}', key=keys.filters(TASKS))
    found = await registry.wanting(TASKS, {"priority": "high"})
    assert [str(device) for device in found.devices] == ["d1|websockets-transport", "d2|mqtt"]
    assert found.unreadable == [(TASKS.key, "odd")]
    await raw(registry, "HSET", "userId", "u", "transport", "mqtt", key=keys.device("d2"))
    known = await registry.device("d2")
    assert known is not None
    assert (known.user_id, known.is_connected) == ("u", True)
    assert await Upkeep(registry).orphans(remove=True) == (2, 1)
    assert (await registry.wanting(TASKS, {})).devices == []
    assert (await registry.wanting(TASKS, {"priority": "high"})).devices == [
        DeviceTransport("d2", "mqtt")
    ]


async def test_a_subscription_is_in_the_seed_s_keys_alone(registry: Registry) -> None:
    one, many = TASKS._replace(model_id="x"), [(PUMP, TASKS, ""), (PHONE, TASKS, json.dumps(HIGH))]
    await registry.subscribe(PUMP, one)
    await registry.subscribe_all(many)
    await registry.subscribe_all([(PUMP, TASKS._replace(user_id=f"u{i}"), "") for i in range(1500)])
    [where] = (await registry.filters(TASKS)).values()
    filter_id = filter_id_of(where.text)
    prefix = registry.keys.prefix

    async def keys() -> set[str]:
        pages = [page async for page in registry.client.scan(f"{prefix}*".encode())]
        return {key.decode().removeprefix(prefix) for page in pages for key in page}

    number = crc32(b"app:myapp:model:task") % 16
    users = [f"app:myapp:user:u{i}:model:task" for i in range(1500)]
    assert await keys() == {
        f"subscription:app:myapp:model:task:partition:{number}",
        f"subscription:app:myapp:model:task:filter:{filter_id}:partition:{number}",
        f"subscription:{one.key}:partition:{crc32(one.key.encode()) % 16}",
        "filters:app:myapp:model:task",
        *(f"subscription:{each}:partition:{crc32(each.encode()) % 16}" for each in users),
    }
    assert len(await registry.subscriptions("pump")) == 1502
    with pytest.raises(ConfigError):
        await registry.subscribe_all([(PUMP, TASKS._replace(user_id="a:b"), "")])
    assert await registry.forget("pump", "phone") == 1503
    assert await keys() == set()


async def test_what_anybody_subscribes_to_is_found(registry: Registry) -> None:
    odd = DeviceTransport("p*[m]?\\|{x}", "ws")
    key = registry.keys.subscription(TASKS)
    for member in ("pump|mqtt", "pumpx|mqtt", str(odd), "pxm|ws"):
        await raw(registry, "SADD", member, key=key)
    for name, transport in (("pump", "mqtt"), (odd.device_id, "ws")):
        [found] = await registry.subscriptions(name)
        assert (found.channel, found.filter_id, found.transport) == (TASKS, "", transport)
    several = await registry.subscriptions_of(["pump", "pxm", "nobody"])
    assert {name: len(each) for name, each in several.items()} == {"pump": 1, "pxm": 1, "nobody": 0}


async def test_devices_users_and_workers(registry: Registry) -> None:
    web = DeviceTransport("pump", "websockets-transport")
    await registry.connected(PUMP, now_us=NOW_US, user_id="ada", user_agent="x", worker="w1")
    await registry.connected(web, now_us=NOW_US + 1_000_000, worker="w2")
    await registry.connected(PHONE, now_us=NOW_US, user_id="ada", worker="w1")
    known = await registry.device("pump")
    assert known is not None
    assert known.user_id == "ada"
    assert {name: each.worker for name, each in known.connections.items()} == {
        "mqtt": "w1",
        "websockets-transport": "w2",
    }
    assert await registry.devices_of("ada") == ["phone", "pump"]
    await registry.connected(PHONE, now_us=NOW_US, worker="w2")  # it has moved on
    assert await Upkeep(registry).leave("w1", now_us=NOW_US + 2_000_000) == 1
    known = await registry.device("pump")
    assert known is not None
    assert [known.connections[name].connected for name in sorted(known.connections)] == [
        False,
        True,
    ]
    await registry.seen(["pump"], now_us=NOW_US + 60_000_000)
    known = await registry.device("pump")
    assert known is not None
    assert known.last_seen_at == "2023-11-14T22:14:20.000Z"
    await registry.subscribe(PUMP, TASKS)
    await registry.subscribe(web, TASKS, where="{}")
    assert await registry.forget("pump") == 2
    assert await registry.device("pump") is None
    assert await registry.devices_of("ada") == ["phone"]
    assert (await registry.wanting(TASKS, {})).devices == []


async def test_devices_of_which_nothing_was_heard(registry: Registry) -> None:
    day_us = 24 * 3_600_000_000
    names = [f"d{number}" for number in range(30)]
    for number, name in enumerate(names):
        device = DeviceTransport(name, "mqtt")
        await registry.connected(device, now_us=NOW_US + number * day_us)
        if number % 3:
            await registry.disconnected(device, now_us=NOW_US + number * day_us)
    await registry.seen(["d3", "d4"], now_us=NOW_US + 20 * day_us)
    await registry.seen(["d6"], now_us=NOW_US + 8 * day_us)
    by_others = registry.keys.device("others")
    await raw(
        registry, "HSET", "transport", "ws", "connectedAt", "2001-01-01T00:00:00Z", key=by_others
    )
    found = {each.device_id async for each in Upkeep(registry).idle(iso(NOW_US + 10 * day_us))}
    assert found == {"d1", "d2", "d5", "d6", "d7", "d8"}
    counted = await Upkeep(registry).statistics()
    assert (counted.devices, counted.connected) == (31, 11)


async def test_subscriptions_expire(registry: Registry) -> None:
    upkeep = Upkeep(registry)
    await registry.subscribe(PUMP, TASKS, until_s=100)
    await registry.subscribe(PHONE, TASKS, until_s=200, where="{}")
    await registry.subscribe(PUMP, TASKS._replace(model_id="x"))
    encoding = Command(("OBJECT", "ENCODING", registry.keys.expiry("phone")))._replace(
        key=registry.keys.expiry("phone")
    )
    assert await registry.client.call(encoding) == b"listpack"
    assert (await upkeep.sweep(99)).expired == 0
    assert (await upkeep.sweep(100)).expired == 1
    assert (await registry.wanting(TASKS, {})).devices == [PHONE]
    await registry.subscribe(PHONE, TASKS, until_s=300, where="{}")  # renewed
    assert (await upkeep.sweep(200)).expired == 0
    assert (await upkeep.sweep(300)).expired == 1
    assert [each.channel.model_id for each in await registry.subscriptions("pump")] == ["x"]
    assert await registry.subscriptions("phone") == []


async def test_other_partitions(registry: Registry) -> None:
    """Fewer, and then more: whoever has the new number finds everybody."""
    channels = [TASKS._replace(model_id=str(number)) for number in range(20)]
    for channel in channels:
        await registry.subscribe(PUMP, channel, until_s=100)
        await registry.subscribe(PHONE, channel, where=json.dumps(HIGH))
    for partitions in (1, 1024):
        assert await Upkeep(registry).repartition(partitions) > 0
        registry = Registry(registry.client, type(registry.keys)(partitions, registry.keys.prefix))
        for channel in channels:
            found = await registry.wanting(channel, {"priority": "high"})
            assert found.devices == [PHONE, PUMP]
        assert await Upkeep(registry).repartition(partitions) == 0
    counted = await Upkeep(registry).statistics(busiest=1)
    assert (counted.channels, counted.subscriptions, counted.filtered) == (20, 40, 20)
    assert counted.busiest[0][1] == 2
    assert (await Upkeep(registry).sweep(100)).expired == 20
    assert len(await registry.subscriptions("phone")) == 20


async def test_random_subscriptions_against_a_plain_list(registry: Registry) -> None:
    chance = random.Random(7)
    wheres = ["", "", json.dumps(HIGH), '{"n": {"$gt": 2}}', '{"n": {"$exists": false}}']
    channels = [*patterns(Channel("a", "m", "u", "1")), Channel("b", "m")]
    held: dict[tuple[DeviceTransport, Channel, str], str] = {}
    for _ in range(120):
        device = DeviceTransport(f"d{chance.randrange(6)}", chance.choice(["mqtt", "ws"]))
        channel, where = chance.choice(channels), chance.choice(wheres)
        if chance.random() < 0.6:
            filter_id = await registry.subscribe(device, channel, where=where)
            held[device, channel, where] = filter_id
        elif (device, channel, where) in held:
            filter_id = held.pop((device, channel, where))
            assert await registry.unsubscribe(device, channel, filter_id)
    for change in (*channels, Channel("a", "m", "v", "1"), Channel("a", "m", "u", "2")):
        for document in ({}, {"n": 3}, {"priority": "high", "n": 1}):
            expected = {
                device
                for device, channel, where in held
                if channel in patterns(change)
                and (not where or fulfils(json.loads(where), document))
            }
            assert set((await registry.wanting(change, document)).devices) == expected


async def test_what_is_no_device_stops_nobody(registry: Registry) -> None:
    """Members that others may have written: the rest are found, and upkeep passes by."""
    key = registry.keys.subscription(TASKS, "f")
    await registry.set_filter(TASKS, "f", json.dumps(HIGH))
    for member in ("pump|mqtt", "no bar", "|mqtt", "pump|"):
        await raw(registry, "SADD", member, key=key)
    await raw(registry, "SADD", b"\xff|mqtt", key=registry.keys.subscription(TASKS))
    found = await registry.wanting(TASKS, {"priority": "high"})
    assert found.members == sorted(["pump|mqtt", "no bar", "|mqtt", "pump|", "\ufffd|mqtt"])
    assert found.devices == [PUMP, DeviceTransport("\ufffd", "mqtt")]
    assert found.by_transport() == {"mqtt": ["pump", "\ufffd"]}
    assert (await Upkeep(registry).orphans(remove=False)).looked_at == 2
    assert await registry.delete_filter(TASKS, "f")
    assert (await registry.wanting(TASKS, {"priority": "high"})).members == ["\ufffd|mqtt"]
    # A key that looks like a subscription's and is none is not asked for.
    other = registry.keys.prefix.encode() + b"subscription:app:x:partition:"
    await raw(registry, "SET", "1", key=other)
    assert await registry.subscriptions("pump") == []


async def test_upkeep_of_many(registry: Registry) -> None:
    """More than go out together, of everything that upkeep does, and a set of several pages."""
    upkeep, count = Upkeep(registry), 1_203
    many = [DeviceTransport(f"d{number}", "ws") for number in range(count)]
    await registry.subscribe_all([(each, TASKS, json.dumps(HIGH)) for each in many], until_s=100)
    alone = [(each, TASKS._replace(model_id=each.device_id), "{}") for each in many[:600]]
    await registry.subscribe_all(alone)
    found = await registry.wanting(TASKS, {"priority": "high"})
    assert found.devices == sorted(many)
    for device in many[:300]:
        await registry.connected(device, now_us=NOW_US, worker="w")
    assert await upkeep.leave("w", now_us=NOW_US) == 300
    assert await upkeep.leave("w", now_us=NOW_US) == 0
    assert (await upkeep.statistics()).connected == 0
    assert await upkeep.repartition(1) > 0
    registry = Registry(registry.client, type(registry.keys)(1, registry.keys.prefix))
    upkeep = Upkeep(registry)
    assert await upkeep.orphans(remove=True) == (count + 600, count - 300 + 300)
    assert await upkeep.sweep(99) == (0,)
    assert await upkeep.sweep(100) == (300,)  # the ends of orphans have gone with them
    assert await registry.filters(TASKS) == {}
    assert await registry.forget(*(each.device_id for each in many)) == 300
