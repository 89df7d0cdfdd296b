"""A real PostgreSQL: started, killed with all its processes, started again, taken away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from perdure.bench.errors import BenchError
from perdure.bench.process import ProcessProbe
from perdure.storebench.servers import postgres
from perdure.storebench.servers.postgres import find_postgres
from tests.support.database_servers import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"shared_buffers": "16MB"}) as running:
        yield running


async def ask(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.postgres
@pytest.mark.slow
async def test_what_was_committed_is_there_after_a_kill(server: PostgresServer) -> None:
    await ask(server.url, "CREATE TABLE kept AS SELECT 7 AS value")
    probe, first = ProcessProbe(server.pid), server.pid
    server.kill()
    assert probe.memory_bytes() == (0, 0)
    with pytest.raises(OSError, match=r".*"):
        await ask(server.url, "SELECT 1")
    assert server.start() > 0
    assert server.pid != first
    assert await ask(server.url, "SELECT value FROM kept") == 7


@pytest.mark.postgres
@pytest.mark.slow
async def test_it_has_our_settings_and_wants_a_password(server: PostgresServer) -> None:
    assert await ask(server.url, "SHOW shared_buffers") == "16MB"
    assert await ask(server.url, "SHOW synchronous_commit") == "on"
    assert await ask(server.url, "SHOW fsync") == "on"
    address = f"postgresql://{postgres.USER}:guess@127.0.0.1:{server.port}/postgres"
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(address, "SELECT 1")


@pytest.mark.postgres
@pytest.mark.slow
def test_a_paused_server_can_be_stopped_and_started_on_its_port(server: PostgresServer) -> None:
    port = server.port
    server.pause()
    state = (Path("/proc") / str(server.pid) / "stat").read_text(encoding="utf-8").split()[2]
    assert state == "T"
    server.restart()
    assert server.port == port


@pytest.mark.postgres
@pytest.mark.slow
def test_a_setting_that_it_does_not_know_shows_its_last_words() -> None:
    server = PostgresServer(settings={"no_such_setting": "1"})
    folder = server.data.parent
    with pytest.raises(BenchError, match="no_such_setting"):
        server.__enter__()
    assert not folder.exists()


@pytest.mark.postgres
@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    with PostgresServer(durable=False) as server:
        pid, folder = server.pid, server.data.parent
        assert folder.stat().st_uid != 0 or os.geteuid() != 0
    assert not folder.exists()
    assert not (Path("/proc") / str(pid)).exists()


def test_without_postgresql_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    assert find_postgres() is None
    with pytest.raises(BenchError, match="not installed"):
        PostgresServer()


def test_the_newest_version_of_debian_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for version in ("9", "15", "15-old"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for name in ("initdb", "postgres"):
            (folder / name).touch()
    (tmp_path / "16" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    assert find_postgres() == tmp_path / "15" / "bin"
