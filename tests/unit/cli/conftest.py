"""A broker's admin socket to talk to, and a data directory with known content."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.errors import PerdureError, StorageFull
from perdure.model import GroupRecord, Message, SessionRecord, Subscription, Will
from perdure.server.administration.socket import AdminServer
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import HANG_S
from tests.support.staged import Staged, take_offset
from tests.unit.cli.mini_broker import MiniBroker
from tests.unit.fixtures import logging_as_before, niced
from tests.unit.server.administration.fake_service import FakeBroker

__all__ = ["FakeBroker", "logging_as_before", "niced"]

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[FakeBroker]:
    """A fake broker that runs on ``tmp_path``, in a thread."""
    broker = FakeBroker()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = AdminServer(broker.service, tmp_path)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(HANG_S)
    yield broker
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(HANG_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def full_disk() -> PerdureError:
    """An error for the fake broker to raise."""
    return StorageFull("no space left")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a stopped broker with four sessions and five messages."""
    path = tmp_path / "data"
    database = RocksDatabase.open(path, now_us=NOW)
    batch = Staged(database)
    for client_id, will in (("plain", None), ("grouped", None), ("willed", Will("gone", b"x"))):
        batch.put_session(
            SessionRecord(
                client_id,
                epoch=3,
                created_at_us=NOW,
                expiry_s=0xFFFF_FFFF,
                connected=False,
                changed_at_us=NOW,
                will=will,
            )
        )
    batch.put_session(
        SessionRecord(
            "cut", epoch=1, created_at_us=NOW, expiry_s=60, connected=True, changed_at_us=NOW
        )
    )
    batch.put_subscription("plain", Subscription("devices/+/t", qos=1), epoch=3)
    batch.put_subscription("grouped", Subscription("devices/#", "g", qos=1), epoch=3)
    batch.put_group(GroupRecord("g", "devices/#", 0, NOW))
    batch.put_group_member("g/devices/#", "grouped")
    for number in range(4):
        message = Message(f"devices/{number}/t", f"{number}.5".encode(), 1, publisher="p")
        message.published_at_us = NOW + number * SECOND
        batch.append(message, NOW + number * SECOND)
    message = Message("raw", b"\xff\x00", 2, properties=b"\x03\x00\x03a/b\x26\x00\x01k\x00\x01v")
    message.published_at_us = NOW + 10 * SECOND
    batch.append(message, NOW + 10 * SECOND)
    retained = Message("devices/0/t", b"r", 1, retain=True)
    retained.offset = take_offset(database, NOW + 11 * SECOND)
    batch.put_retained(retained)
    batch.write()
    database.sync()
    database.close()
    return path


@pytest.fixture
def mini_broker() -> Iterator[MiniBroker]:
    """A broker in a thread, for the commands that are clients."""
    broker = MiniBroker()
    broker.start()
    yield broker
    broker.stop()
