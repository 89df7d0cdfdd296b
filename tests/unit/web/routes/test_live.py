"""What ``/live`` sends, to whom, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.listeners import ListUnauthorized
from perdure.admin.records.node import GetOverview
from perdure.admin.rights import Principal

pytest.importorskip("starlette")

from perdure.web.routes import live


class Refusal(msgspec.Struct):
    """As much of one as the stream looks at."""

    client_id: str
    last_at_us: int


class Overview(msgspec.Struct):
    as_of_us: int


class Broker:
    """Answers, and counts how often it was asked."""

    def __init__(self) -> None:
        self.looks = 0
        self.refused: list[Refusal] = []
        self.is_away = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def call(self, request: Request[Any]) -> Any:
        await self.answers.wait()
        if self.is_away:
            raise Refused("broker_unavailable", "away")
        if isinstance(request, GetOverview):
            self.looks += 1
            return Overview(self.looks)
        assert isinstance(request, ListUnauthorized)
        return SimpleNamespace(items=list(self.refused))


class Scene:
    def __init__(self) -> None:
        self.broker = Broker()
        self.holding = {"ada", "bob"}
        identity = SimpleNamespace(holds=lambda proof: proof in self.holding)
        context: Any = SimpleNamespace(admin=self.broker, identity=identity)
        self.feed = live.Feed(context)

    def listen(self, name: str, *scopes: str) -> AsyncIterator[bytes]:
        state = {"proof": name, "principal": Principal(name, "viewer", scopes)}
        request: Any = SimpleNamespace(scope={"state": state})
        return self.feed.listen(request)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(live, "INTERVAL_S", 0.0)
    return Scene()


async def until(stream: AsyncIterator[bytes], name: bytes) -> bytes:
    async with asyncio.timeout(5):
        while not (event := await anext(stream)).startswith(b"event: " + name):
            pass
    return event


async def test_all_are_told_of_one_look(scene: Scene) -> None:
    first, second = scene.listen("ada"), scene.listen("bob")
    assert await anext(first) == b"retry: 3000\n\n"
    assert await anext(second) == b"retry: 3000\n\n"
    assert await until(first, b"overview") == await until(second, b"overview")


async def test_who_may_not_listen_any_more_is_not_told_what_comes_then(scene: Scene) -> None:
    stream = scene.listen("ada")
    await until(stream, b"overview")
    scene.broker.answers.clear()
    waiting = asyncio.ensure_future(anext(stream, b"ended"))
    while (await asyncio.wait({waiting}, timeout=0))[0]:
        waiting = asyncio.ensure_future(anext(stream, b"ended"))
    # Asked for while it might listen, and come when it might not.
    scene.holding.clear()
    scene.broker.answers.set()
    assert await waiting == b"ended"


async def test_who_was_refused_is_told_to_whom_may_ask_for_it(scene: Scene) -> None:
    whole, narrow = scene.listen("ada"), scene.listen("bob", "stats")
    await until(whole, b"overview")
    await until(narrow, b"overview")
    scene.broker.refused = [Refusal("secret-client", 1 << 60)]
    assert b"secret-client" in await until(whole, b"refused")
    for _ in range(live.QUEUE_MAX + 1):
        assert (await anext(narrow)).startswith(b"event: overview")


async def test_a_broker_that_is_away_is_told_and_waited_for(scene: Scene) -> None:
    stream = scene.listen("ada")
    await until(stream, b"overview")
    scene.broker.is_away = True
    assert b"broker_unavailable" in await until(stream, b"unavailable")
    scene.broker.is_away = False
    await until(stream, b"overview")


async def test_who_is_slow_misses_the_oldest(scene: Scene) -> None:
    stream = scene.listen("ada")
    await until(stream, b"overview")
    looks = scene.broker.looks
    async with asyncio.timeout(5):
        while scene.broker.looks < looks + 5 * live.QUEUE_MAX:
            await asyncio.sleep(0)
    assert (
        scene.broker.looks - live.QUEUE_MAX
        <= msgspec.json.decode((await anext(stream)).split(b"data: ")[1])["as_of_us"]
    )
