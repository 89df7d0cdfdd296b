"""What is published is in the streams of other transports, once for each device that wants it."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from perdure.forwarders import registry as forwarder
from perdure.forwarders.registry import entry_id
from perdure.model import Cursor, Message
from perdure.registry import Channel, DeviceTransport, Registry, patterns
from perdure.registry.topics import topic_of
from perdure.storage.redis import Command
from tests import servers
from tests.support.content_oracle import fulfils
from tests.support.forwarder_bench import NAME, Bench

pytestmark = pytest.mark.redis
TASK = Channel("plant", "task", "ada", "9")
PHONE = DeviceTransport("phone", "ws")


@pytest.fixture(params=["single", "cluster"])
async def registry(request: pytest.FixtureRequest) -> AsyncIterator[Registry]:
    server = servers.redis_cluster() if request.param == "cluster" else servers.redis()
    made = await Registry.open(server.url, partitions=16, prefix=f"t{secrets.token_hex(4)}:")
    made.client.url = server.url  # type: ignore[attr-defined]
    yield made
    await made.close()


@pytest.fixture
async def bench(registry: Registry) -> AsyncIterator[Bench]:
    made = bench_on(registry)
    await made.run()
    yield made
    await made.close()


def bench_on(registry: Registry) -> Bench:
    return Bench(
        {
            "type": "registry",
            "url": registry.client.url,  # type: ignore[attr-defined]
            "partitions": registry.keys.partitions,
            "prefix": registry.keys.prefix,
            "key": registry.keys.prefix + "transport:{transport}",
        },
        filter=["app/#"],
    )


async def entries(registry: Registry, transport: str) -> list[tuple[str, dict[str, Any]]]:
    key = f"{registry.keys.prefix}transport:{transport}".encode()
    reply: Any = await registry.client.call(Command(("XRANGE", key, "-", "+"), key))
    return [
        (name.decode(), {k.decode(): v for k, v in zip(pairs[::2], pairs[1::2], strict=True)})
        for name, pairs in reply
    ]


def message(channel: Channel, document: object, **more: Any) -> Message:
    return Message(topic_of(channel), json.dumps(document).encode(), 1, publisher="p", **more)


async def passed(bench: Bench, count: int) -> None:
    await bench.until(lambda: bench.forwarders.rows()[0].offset >= bench.database.last_offset)
    await bench.until(lambda: bench.forwarded() >= count)


async def test_devices_that_others_have_written_get_their_messages(
    registry: Registry, bench: Bench
) -> None:
    """Written in the seed's own layout; MQTT clients subscribe at the broker."""
    keys, tasks = registry.keys, Channel("plant", "task")
    for key, value in (
        (keys.subscription(tasks), "phone|ws"),
        (keys.subscription(tasks), "pump|mqtt"),
        (keys.subscription(tasks, "f1"), "tablet|push"),
        (keys.subscription(tasks._replace(user_id="ada")), "watch|ws"),
    ):
        await registry.client.call(Command(("SADD", key, value), key))
    place = keys.filters(tasks)
    await registry.client.call(Command(("HSET", place, "f1", '{"n":{"$gte":2}}'), place))
    await bench.publish(
        *(message(TASK, {"n": number}) for number in range(4)),
        Message("app/plant/other", b"no channel", 1),
        message(Channel("elsewhere", "task"), {"n": 9}),
    )
    await passed(bench, 4)
    of_ws, of_push = await entries(registry, "ws"), await entries(registry, "push")
    assert [json.loads(fields["payload"])["n"] for _, fields in of_ws] == [0, 1, 2, 3]
    assert {fields["devices"] for _, fields in of_ws} == {b'["phone","watch"]'}
    assert [json.loads(fields["payload"])["n"] for _, fields in of_push] == [2, 3]
    name, fields = of_push[0]
    assert fields["channel"].decode() == TASK.key
    assert (fields["topic"].decode(), fields["qos"], fields["publisher"]) == (
        topic_of(TASK), b"1", b"p",
    )  # fmt: skip
    assert name == [each for each, _ in of_ws][2]
    assert await entries(registry, "mqtt") == []


async def test_many_devices_are_several_entries_and_a_repeated_batch_is_nothing(
    registry: Registry, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "DEVICES_PER_ENTRY", 3)
    monkeypatch.setattr(forwarder, "SCRIPT_BYTES", 100)
    for number in range(7):
        await registry.subscribe(DeviceTransport(f"d{number}", "ws"), Channel("plant", "task"))
    await bench.publish(message(TASK, 1), message(TASK, 2))
    await passed(bench, 2)
    first = await entries(registry, "ws")
    assert [len(json.loads(fields["devices"])) for _, fields in first] == [3, 3, 1] * 2
    # The cursor that a killed process would have left; and one more wants it by now.
    await bench.close()
    await registry.subscribe(DeviceTransport("a-late-one", "ws"), Channel("plant", "task"))
    bench.start()
    session = await bench.database.open_session(f"$forwarder/{NAME}")
    assert session is not None
    batch = bench.services.committer.batch
    batch.put_cursor(
        f"$forwarder/{NAME}",
        Cursor(0, 0, sent=0),
        epoch=session.record.epoch,
    )
    await bench.run()
    await bench.publish(message(TASK, 3))
    await passed(bench, 1)
    again = await entries(registry, "ws")
    assert again[:6] == first
    assert [json.loads(fields["devices"])[0] for _, fields in again[6:]] == [
        "a-late-one", "d2", "d5",
    ]  # fmt: skip


async def test_random_changes_against_a_plain_list(registry: Registry, bench: Bench) -> None:
    """Several transports of a device, several devices of a user, filters; disconnected ones too."""
    chance = random.Random(11)
    channels = patterns(TASK)
    wheres = ["", '{"n": {"$gt": 2}}', '{"k": {"$in": ["a", null]}}', '{"n": {"$exists": false}}']
    held: list[tuple[DeviceTransport, Channel, str]] = []
    for number in range(60):
        device = DeviceTransport(f"d{number % 12}", chance.choice(["ws", "push", "mqtt"]))
        one = (device, chance.choice(channels), chance.choice(wheres))
        await registry.connected(device, now_us=1, user_id=f"u{number % 3}")
        await registry.subscribe(one[0], one[1], where=one[2])
        held.append(one)
    sent = [
        (chance.choice(channels), {"n": chance.randrange(5), "k": chance.choice(["a", None, 1])})
        for _ in range(80)
    ]
    await bench.publish(*(message(*each) for each in sent))
    await passed(bench, 1)
    for transport in ("ws", "push"):
        expected = []
        for channel, document in sent:
            wants = {
                device.device_id
                for device, subscribed, where in held
                if device.transport == transport and subscribed in patterns(channel)
                and (not where or fulfils(json.loads(where), document))
            }  # fmt: skip
            if wants:
                expected.append((channel.key, document, sorted(wants)))
        found = [
            (f["channel"].decode(), json.loads(f["payload"]), json.loads(f["devices"]))
            for _, f in await entries(registry, transport)
        ]
        assert found == expected


@pytest.mark.parametrize(
    ("settings", "said"), [({"url": ""}, "URL"), ({"key": "all"}, "{transport}")]
)
async def test_settings_that_cannot_be_used(settings: Mapping[str, Any], said: str) -> None:
    bench = Bench({"type": "registry", "url": "redis://localhost", **settings})
    with pytest.raises(Exception, match=said):
        await bench.run()
    await bench.close()


def test_identifiers_rise_with_offsets_and_entries() -> None:
    names = [entry_id(offset, number) for offset in (999, 1000, 1001) for number in (0, 2**20 - 1)]
    assert names == ["0-1047527424", "0-1048575999", "1-0", "1-1048575", "1-1048576", "1-2097151"]
