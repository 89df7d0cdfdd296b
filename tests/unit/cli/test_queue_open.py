"""Which store a URL means, and what is said when it cannot be opened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.queue_open import open_directory, open_server
from perdure.cli.queue_sources import SessionSource
from perdure.errors import ConfigError, StorageUnavailable

NOW = 1_700_000_000_000_000


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
        assert isinstance(opened.source, SessionSource)
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
