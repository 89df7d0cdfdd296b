"""The process that reads the archive: asked one page at a time, begun anew when it fails, and
waited for as long as there is a client."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.config.schema import Config, PipelineConfig, ReplayConfig, TablesConfig
from perdure.config.schema.pipeline import ArchiveConfig
from perdure.errors import ConfigError
from perdure.observe.metrics import Metrics
from perdure.server import past_part, past_start
from perdure.server.past_part import PastPart
from perdure.storage.cursors import PipelineCursor, save_cursor
from tests.support.bounds import HANG_S

PROGRAM = """
import json, os, sys, time
import msgspec
from perdure.model import Message
from perdure.pipeline.past.wire import PageAnswer, PageRequest, PastSettings, framed, packed
settings = msgspec.json.decode(sys.stdin.readline(), type=PastSettings)
home = settings.tables.place
def said(name):
    path = os.path.join(home, name)
    if os.path.exists(path):
        return open(path).read() or "yes"
    return ""
for line in sys.stdin:
    if line == "stop\\n":
        break
    request = msgspec.json.decode(line, type=PageRequest)
    with open(os.path.join(home, "asked"), "a") as file:
        file.write(json.dumps([os.getpid(), request.filter, request.after_offset]) + "\\n")
    if said("hang"):
        time.sleep(600)
    if said("die"):
        os.unlink(os.path.join(home, "die"))
        os._exit(3)
    if said("away") or said("bad") == request.filter:
        why = "storage_unavailable"
        answer = PageAnswer(request.number, code=why, error="it is away", hint="h")
    elif said("beyond"):
        answer = PageAnswer(request.number, through_offset=request.until_offset + 1)
    elif said("other"):
        answer = PageAnswer(request.number + 1, through_offset=request.until_offset)
    elif said("garbage"):
        sys.stdout.buffer.write(b"\\0\\0\\0\\1\\xc1")
        sys.stdout.flush()
        continue
    else:
        through = min(request.after_offset + 10, request.until_offset)
        messages = [packed(Message(request.filter, b"x", 1, offset=through))]
        missing = "a part" if said("missing") else ""
        answer = PageAnswer(request.number, messages, through, missing)
    sys.stdout.buffer.write(framed(answer))
    sys.stdout.flush()
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """What is logged, by event."""
    found: dict[str, list[dict[str, Any]]] = {}

    class Log:
        def say(self, event: str, **fields: Any) -> None:
            found.setdefault(event, []).append(fields)

        info = warning = error = say

    monkeypatch.setattr(past_part, "log", Log())
    monkeypatch.setattr(past_part, "RESTART_PAUSES_S", (0.01,))
    return found


class World:
    """A part, and the place that tells its process what to do."""

    def __init__(self, home: Path, **replay: Any) -> None:
        self.home = home / "to"
        self.home.mkdir()
        self.metrics = Metrics()
        archive = ArchiveConfig(topics=("a/#",) if replay.pop("some", False) else ())
        self.part = PastPart(
            ReplayConfig(**replay),
            PipelineConfig(tables=TablesConfig(place=str(self.home)), archive=archive),
            home / "db",
            database=lambda: "id",
            metrics=self.metrics,
            command=(sys.executable, "-c", PROGRAM),
        )

    def say(self, name: str, text: str = "") -> None:
        (self.home / name).write_text(text)

    def unsay(self, name: str) -> None:
        (self.home / name).unlink()

    @property
    def asked(self) -> list[list[Any]]:
        import json

        path = self.home / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def read(
        self, client: str = "c", topic: str = "t", wanted: Callable[[], bool] = lambda: True
    ) -> asyncio.Task[Any]:
        return asyncio.create_task(
            self.part.read(client, topic, after_offset=5, until_offset=100, is_wanted=wanted)
        )


@pytest.fixture
async def world(tmp_path: Path, told: dict[str, Any]) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.part.start()
    yield made
    await made.part.stop()
    assert made.metrics.archive_waiting == 0


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_page(world: World, told: dict[str, Any]) -> None:
    assert world.part._child is None  # nobody has asked
    page = await world.read()
    assert [(each.topic, each.offset) for each in page.messages] == [("t", 15)]
    assert page.through_offset == 15
    assert (world.metrics.archive_pages, world.metrics.archive_messages) == (1, 1)
    assert world.metrics.archive_read_seconds.count == 1
    await world.read()
    assert len({pid for pid, _, _ in world.asked}) == 1
    assert (world.part.problem, world.part.waiting_s) == ("", 0.0)
    assert len(told["archive.reader_started"]) == 1


async def test_one_that_is_away_is_waited_for_and_told_once(
    world: World, told: dict[str, Any]
) -> None:
    world.say("away")
    task = world.read()
    await until(lambda: world.metrics.archive_failures > 3)
    assert world.part.problem == "it is away"
    assert world.part.waiting_s > 0
    assert not task.done()
    world.unsay("away")
    assert (await task).through_offset == 15
    assert world.part.problem == ""
    assert [each["hint"] for each in told["archive.away"]] == ["h"]
    assert len(told["archive.back"]) == 1


@pytest.mark.parametrize("what", ["die", "garbage", "beyond", "other"])
async def test_a_process_that_fails_is_replaced(
    what: str, world: World, told: dict[str, Any]
) -> None:
    world.say(what)
    task = world.read()
    await until(lambda: told.get("archive.away"))
    if what != "die":
        world.unsay(what)
    assert (await task).through_offset == 15
    assert len({pid for pid, _, _ in world.asked}) > 1
    for pid in {pid for pid, _, _ in world.asked[:-1]}:
        assert not Path(f"/proc/{pid}").exists() or pid == world.asked[-1][0]


async def test_a_killed_process_is_replaced(world: World) -> None:
    await world.read()
    os.kill(world.asked[-1][0], signal.SIGKILL)
    assert (await world.read()).through_offset == 15


async def test_one_that_hangs_is_ended(tmp_path: Path, told: dict[str, Any]) -> None:
    world = World(tmp_path, answer_timeout_s=1)
    await world.part.start()
    world.say("hang")
    task = world.read()
    await until(lambda: told.get("archive.away"))
    assert told["archive.away"][0]["error"] == "no answer within 1 s"
    world.unsay("hang")
    assert (await task).through_offset == 15
    await world.part.stop()


async def test_one_that_nobody_asks_ends(tmp_path: Path, told: dict[str, Any]) -> None:
    world = World(tmp_path, idle_s=1)
    await world.part.start()
    await world.read()
    (pid, _, _) = world.asked[0]
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert (await world.read()).through_offset == 15
    assert len(told["archive.reader_started"]) == 2
    assert "archive.away" not in told
    await world.part.stop()


async def test_who_is_gone_waits_no_longer(world: World) -> None:
    world.say("away")
    is_there = True
    task = world.read(wanted=lambda: is_there)
    await until(lambda: world.metrics.archive_failures)
    is_there = False
    assert await task is None
    world.unsay("away")
    assert await world.read(wanted=lambda: False) is None


async def test_one_request_that_fails_does_not_hold_up_the_others(world: World) -> None:
    world.say("bad", "poison")
    bad = world.read("p", "poison")
    for number in range(5):
        assert (await world.read(f"c{number}")).through_offset == 15
    assert not bad.done()
    world.unsay("bad")
    assert (await bad).through_offset == 15


async def test_the_line_is_bounded_and_stops(tmp_path: Path, told: dict[str, Any]) -> None:
    world = World(tmp_path, waiting_max=2)
    await world.part.start()
    world.say("away")
    tasks = [world.read(f"c{number}") for number in range(3)]
    await until(lambda: world.part.is_full)
    await until(lambda: world.metrics.archive_waiting == 3)
    await world.part.stop()
    assert await asyncio.gather(*tasks) == [None] * 3


async def test_what_is_missing_is_told_once(world: World, told: dict[str, Any]) -> None:
    world.say("missing")
    await world.read()
    await world.read()
    assert [each["reason"] for each in told["archive.incomplete"]] == ["a part"]


async def test_what_the_archive_has_is_known(tmp_path: Path) -> None:
    world = World(tmp_path, some=True)
    data = tmp_path / "db"
    data.mkdir()
    has = world.part.has
    assert not has("a/b", 50, last_offset=100)

    def tell(**changes: Any) -> None:
        fields = {"name": "archive", "place": str(world.home), "database": "id", "offset": 60}
        save_cursor(data, PipelineCursor(**{**fields, "moved_at_us": 1, **changes}))
        world.part._reached = (0.0, 0)

    for wrong in ({"name": "other"}, {"place": "/elsewhere"}, {"database": "another"}):
        tell(**wrong)
        assert not has("a/b", 50, last_offset=100)
    tell(place=f"host:{world.home}")
    assert has("a/b", 50, last_offset=100)
    assert has("a/#", 60, last_offset=100)
    assert not has("a/b", 61, last_offset=100)
    # Only a part of the log is archived.
    assert not has("#", 50, last_offset=100)
    # It is of a log that was longer: a backup was restored.
    assert not has("a/b", 50, last_offset=55)


def test_whether_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(archive: str, place: str, *, installed: bool = True, kind: str = "iceberg") -> bool:
        found = object() if installed else None
        monkeypatch.setattr(past_start.importlib.util, "find_spec", lambda _: found)
        tables = TablesConfig(place=place, format=kind)  # type: ignore[arg-type]
        replay = ReplayConfig(archive=archive)  # type: ignore[arg-type]
        return past_start.reads_archive(
            Config(pipeline=PipelineConfig(tables=tables), replay=replay)
        )

    place = str(tmp_path)
    assert reads("auto", place)
    assert reads("on", place)
    assert not reads("off", place)
    assert not reads("auto", "")
    assert not reads("auto", place, installed=False)
    with pytest.raises(ConfigError, match="no place"):
        reads("on", "")
    with pytest.raises(ConfigError, match="needs the package pyarrow"):
        reads("on", place, installed=False, kind="delta")
