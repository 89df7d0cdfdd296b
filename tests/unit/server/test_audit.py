"""The record of changes on a broker: kept, read backwards, redacted, and taken from elsewhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import structlog

from perdure.admin.audit import AuditRecord
from perdure.broker.auth.authenticate import AnonymousPolicy, EnhancedMethods
from perdure.broker.auth.authorize import AllowAll
from perdure.broker.broker import Broker
from perdure.clock import Clock, SystemClock
from perdure.config.schema import Config, StorageConfig
from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.identity.file import IdentityFile
from perdure.observe import Metrics
from perdure.server import audit
from perdure.server.audit import AuditTrail
from perdure.server.scheduler import LoopScheduler
from perdure.storage.memory import MemoryDatabase

HOUR_US = 3_600_000_000
RECORD = AuditRecord(1, "anna", "admin", "socket", "", "", "bans.add", "a", {}, None, None, "ok")


class Wall(Clock):
    """The machine's clock, which can be set."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def now_us(self) -> int:
        return SystemClock().now_us() + self.ahead_us

    def monotonic_us(self) -> int:
        return SystemClock().monotonic_us() + self.ahead_us


class Scene:
    """A broker on a memory database that records nothing of clients."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.wall = Wall()
        self.errors: list[BaseException] = []
        self.scheduler = LoopScheduler(asyncio.get_running_loop(), self.errors.append)
        self.broker = Broker(
            Config(storage=StorageConfig(record=())),
            self.database,
            scheduler=self.scheduler,
            clock=self.wall,
            chance=random.Random(1),
            authenticator=AnonymousPolicy(),
            methods=EnhancedMethods(),
            authorizer=AllowAll(),
            metrics=Metrics(),
            log=structlog.get_logger(),
            version="1",
        )
        self.trail = AuditTrail(self.broker.services)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = Scene()
    await found.broker.start()
    yield found
    found.broker.stop_taking(0x8B)
    await found.broker.finish()
    await found.scheduler.close()
    assert found.errors == []


def record(target: str, operation: str = "sessions.kick", **more: object) -> AuditRecord:
    fields: dict[str, object] = {
        "at_us": 1,
        "principal": "ada",
        "role": "admin",
        "source": "session",
        "peer": "10.0.0.1",
        "request_id": "r",
        "operation": operation,
        "target": target,
        "request": {},
        "before": None,
        "after": None,
        "outcome": "ok",
        **more,
    }
    return msgspec.convert(fields, AuditRecord)


async def test_pages_go_back_over_all_of_the_past(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "READ_MAX", 8)
    written = []
    for hour in range(4):
        for number in range(1 if hour % 2 else 20):
            written.append(f"{hour}.{number}")
            await scene.trail.record(record(written[-1]))
        scene.wall.ahead_us += HOUR_US * 10 ** (hour % 3)
    seen, before = [], 0
    while True:
        page, before = await scene.trail.page(before_offset=before, limit=7)
        seen += [each.target for _, each in page]
        assert len(page) <= 7
        if not before:
            break
    assert seen == written[::-1]
    only, _ = await scene.trail.page(before_offset=0, limit=50, topic_filter="$audit/bans/#")
    assert only == []


async def test_secrets_are_not_written(scene: Scene) -> None:
    await scene.trail.record(
        record(
            "x",
            "credentials.add",
            request={"name": "ada", "password": "hunter22", "deep": [{"token": "t0k"}]},
            after={"has_password": True, "password_hash": "$argon2"},
        )
    )
    result = await scene.database.read(
        ["$audit/#"], after_offset=0, until_offset=scene.database.last_offset, limit=10
    )
    (message,) = result.messages
    assert message.topic == "$audit/credentials/add"
    for secret in (b"hunter22", b"t0k", b"$argon2"):
        assert secret not in message.payload
    assert b'"has_password":true' in message.payload


async def test_nobody_waits_for_a_store_that_has_failed(scene: Scene) -> None:
    """It may never take anything again; what was asked for must have an answer."""
    trail = AuditTrail(scene.broker.services)
    committer = scene.broker.services.committer
    committer.lost(StorageCorrupt("a block of 000019.sst is damaged", hint="repair it"))
    count = len(committer.batch.operations)
    async with asyncio.timeout(5):
        with pytest.raises(StorageUnavailable, match="log alone") as told:
            await trail.record(RECORD)
    assert told.value.hint == "a block of 000019.sst is damaged (repair it)"
    assert len(committer.batch.operations) == count


async def test_what_was_changed_elsewhere_comes_once(scene: Scene, tmp_path: Path) -> None:
    with IdentityFile(tmp_path) as file:
        trail = AuditTrail(scene.broker.services, file)
        with file.change():
            file.record(record("ada", "users.add"))
            file.record(record("bob", "users.add"))
        # The hook is told of the change as well: it is recorded where it was made.
        await asyncio.gather(*(trail.record(record("bob", "users.add")) for _ in range(3)))
        await trail.record(record("eve", "users.add", outcome="forbidden"))
        page, before = await trail.page(before_offset=0, limit=10)
        assert [(each.target, each.outcome) for _, each in page] == [
            ("eve", "forbidden"),
            ("bob", "ok"),
            ("ada", "ok"),
        ]
        assert before == 0
        assert await trail.drain() == 0
