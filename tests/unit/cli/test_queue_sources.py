"""Which store a URL means, and what is said when it cannot be opened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.bench.process import free_port
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.queue_sources import (
    DeviceQueueSource,
    DirectorySource,
    open_directory,
    open_server,
)
from perdure.errors import ConfigError, StorageUnavailable
from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.memory import MemoryDeviceQueue

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def test_a_scheme_that_is_no_store() -> None:
    with (
        pytest.raises(ConfigError, match="mysql://") as caught,
        open_server("mysql://x", layout="compact", prefix=None, now_us=NOW),
    ):
        pass
    assert "postgresql" in caught.value.hint


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_nobody_there(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}"
    with (
        pytest.raises(StorageUnavailable),
        open_server(url, layout="compact", prefix=None, now_us=NOW),
    ):
        pass


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("postgresql://x", "perdure.storage.postgres.reader", "postgres"),
        ("rediss://x", "perdure.storage.redis", "redis"),
    ],
)
def test_an_extra_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(CommandFailed) as caught,
        open_server(url, layout="compact", prefix=None, now_us=NOW),
    ):
        pass
    assert caught.value.exit_code is ExitCode.CONFIG
    assert f"perdure[{extra}]" in caught.value.hint


def test_a_folder_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed), open_directory(tmp_path, now_us=NOW):
        pass


def test_a_data_directory(directory: Path) -> None:
    with open_directory(directory, now_us=NOW) as opened:
        assert isinstance(opened.source, DirectorySource)
        stats = opened.run(opened.source.stats("plain"))
        assert stats is not None
        assert (stats.publish_count, stats.payload_bytes, stats.epoch) == (4, 12, 3)
        assert (stats.last_serial, stats.last_packet_id) == (4, 4)
        entries = list(opened.each(opened.source.entries("plain")))
        assert [entry.message.topic for entry in entries] == [f"devices/{n}/t" for n in range(4)]
        assert opened.run(opened.source.stats("nobody")) is None
        assert list(opened.each(opened.source.entries("nobody"))) == []
        listed = opened.each(opened.source.queues())
        assert [stats.client_id for stats in listed] == ["cut", "grouped", "plain", "willed"]


async def test_looking_does_not_delete_what_has_expired() -> None:
    queue = MemoryDeviceQueue()
    soon = Message("t", b"x", 1, expires_at_us=NOW + SECOND, published_at_us=NOW)
    later = Message("t", b"y", 1, published_at_us=NOW)
    new = [NewEntry("c", soon, 1), NewEntry("c", later, 1), NewEntry("c", later, 1)]
    await queue.append(new, now_us=NOW, limit=10)
    source = DeviceQueueSource(queue, NOW + 2 * SECOND)
    assert [entry.packet_id async for entry in source.entries("c")] == [2, 3]
    assert [stats.publish_count async for stats in source.queues()] == [3]
    assert await source.discard("c")
    assert not await source.discard("c")
    await source.close()


async def test_messages_without_a_number_have_no_session_line() -> None:
    queue = MemoryDeviceQueue()
    await queue.take("new", epoch=1)
    source = DeviceQueueSource(queue, NOW)
    assert [line async for line in source.lines()] == [{"client_id": "new", "last_packet_id": 0}]
