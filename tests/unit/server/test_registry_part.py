"""A broker's clients in a registry on a real Redis, through outages of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from perdure.config.schema import RegistryConfig
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Disconnect, Subscribe, SubscribeFilter, Unsubscribe
from perdure.registry import Channel, Registry
from perdure.server.registry_part import RegistryPart
from tests import servers
from tests.support.bounds import HANG_S
from tests.support.database_servers import RedisServer
from tests.unit.server.administration.scene import Client, Scene

pytestmark = pytest.mark.redis
TASKS = Channel("plant", "task")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = Scene()
    await found.broker.start()
    yield found
    found.broker.stop_taking(0x8B)
    await found.broker.finish()
    await found.scheduler.close()
    assert found.errors == []


def part_of(scene: Scene, url: str, prefix: str) -> RegistryPart:
    config = RegistryConfig(url=url, prefix=prefix, partitions=8)
    return RegistryPart(config, scene.broker.services, worker="node-1")


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(HANG_S):
        while not await condition():
            await asyncio.sleep(0.02)


def leave(scene: Scene, client: Client) -> None:
    client.connection.receive(encode(Disconnect(0), 5))
    scene.broker.services.pipeline.run()


async def test_clients_come_and_go(scene: Scene) -> None:
    url, prefix = servers.redis().url, f"t{secrets.token_hex(4)}:"
    registry = await Registry.open(url, partitions=8, prefix=prefix)
    part = part_of(scene, url, prefix)

    async def wanting() -> list[str]:
        return [str(each) for each in (await registry.wanting(TASKS, {})).devices]

    async def is_connected(name: str) -> bool | None:
        device = await registry.device(name)
        return None if device is None else device.is_connected

    pump = await scene.connect("pump", subscribe="app/plant/model/task/#", expiry_s=60)
    await scene.connect("clock", subscribe="app/plant/model/task")
    step = part._step
    await step()
    assert await wanting() == ["clock|mqtt", "pump|mqtt"]
    assert await is_connected("pump")
    await pump.send(Subscribe(2, [SubscribeFilter("app/plant/user/ada/model/task", 1)]))
    await pump.send(Unsubscribe(3, ["app/plant/model/task/#"]))
    await step()
    assert await wanting() == ["clock|mqtt"]
    assert [each.channel.user_id for each in await registry.subscriptions("pump")] == ["ada"]
    for client in (pump, await scene.connect("clock")):  # taken over, with a clean start
        leave(scene, client)
    await step()
    await step()
    assert await is_connected("pump") is False
    assert [each.channel.user_id for each in await registry.subscriptions("pump")] == ["ada"]
    assert await registry.subscriptions("clock") == []
    # Another process of the same broker finds what this one has left.
    await scene.connect("pump", subscribe="app/plant/model/task")
    await part._step()
    assert part._registry is not None
    await part._registry.close()  # without a word, as a process that is killed
    part = part_of(scene, url, prefix)
    await part._step()
    assert await wanting() == ["pump|mqtt"]
    assert [each.channel for each in await registry.subscriptions("pump")] == [TASKS]
    await part.start()
    await part.stop()
    assert await is_connected("pump") is False
    assert await wanting() == []  # it had no durable session
    await registry.close()


async def test_redis_is_away(scene: Scene) -> None:
    """The broker goes on, and all of it is there when Redis is back, even with nothing left."""
    with RedisServer() as server:
        part = part_of(scene, server.url, "nxx:")
        registry = await Registry.open(server.url, partitions=8)
        pump = await scene.connect("pump", subscribe="app/plant/model/task")
        await part.start()

        async def has(*names: str) -> bool:
            found = await registry.wanting(TASKS, {})
            return [each.device_id for each in found.devices] == list(names)

        await until(lambda: has("pump"))
        await registry.close()
        server.kill()
        leave(scene, pump)
        await scene.connect("phone", subscribe="app/plant/model/task")
        server.start()
        registry = await Registry.open(server.url, partitions=8)
        await until(lambda: has("phone"))
        await part.stop()
        await registry.close()
