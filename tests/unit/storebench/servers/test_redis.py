"""A real Redis: started, killed, started again, taken away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.bench.errors import BenchError
from perdure.bench.process import ProcessProbe
from perdure.storebench.servers import redis
from tests.support.database_servers import RedisServer, TlsFiles
from tests.support.resp import ReplyError
from tests.unit.net.helpers import issue


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.mark.redis
@pytest.mark.slow
def test_what_was_answered_is_there_after_a_kill(server: RedisServer) -> None:
    assert server.command("SET", "kept", b"\x00\r\n7") == b"OK"
    probe, first = ProcessProbe(server.pid), server.pid
    server.kill()
    assert probe.memory_bytes() == (0, 0)
    with pytest.raises(OSError, match=r".*"):
        server.command("PING")
    assert server.start() > 0
    assert server.pid != first
    assert server.commands([("GET", "kept"), ("GET", "other"), ("DEL", "kept")]) == [
        b"\x00\r\n7",
        None,
        1,
    ]
    assert server.restart() > 0
    assert server.command("GET", "kept") is None


@pytest.mark.redis
@pytest.mark.slow
def test_it_has_our_settings_and_wants_a_password() -> None:
    with RedisServer(appendfsync="", settings={"maxclients": "77"}) as server:
        assert server.command("CONFIG", "GET", "maxclients") == [b"maxclients", b"77"]
        assert server.command("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]
        password, server.password = server.password, ""
        with pytest.raises(ReplyError, match="NOAUTH"):
            server.command("PING")
        server.password = password
        assert f":{password}@127.0.0.1:{server.port}" in server.url


@pytest.mark.redis
@pytest.mark.slow
def test_tls_is_all_that_the_port_speaks(tmp_path: Path) -> None:
    authority = issue(tmp_path, "authority", "Test authority")
    issue(tmp_path, "server", "localhost", authority)
    tls = TlsFiles(*(tmp_path / name for name in ("authority.pem", "server.pem", "server.key")))
    with RedisServer(tls=tls, password="") as server:
        assert server.command("PING") == b"PONG"
        assert server.url == f"rediss://127.0.0.1:{server.port}/0"


@pytest.mark.redis
@pytest.mark.slow
def test_a_paused_server_goes_on(server: RedisServer) -> None:
    server.pause()
    stat = Path(f"/proc/{server.pid}/stat").read_text(encoding="utf-8")
    assert stat[stat.rindex(")") + 2] in "Tt"
    server.resume()
    assert server.command("PING") == b"PONG"


@pytest.mark.redis
@pytest.mark.slow
def test_its_folder_goes_with_it(server: RedisServer) -> None:
    (name, folder) = server.commands([("CONFIG", "GET", "dir")])[0]  # type: ignore[misc]
    assert name == b"dir"
    assert Path(os.fsdecode(folder)).is_dir()  # type: ignore[arg-type]
    server.close()
    assert not Path(os.fsdecode(folder)).exists()  # type: ignore[arg-type]


@pytest.mark.redis
def test_a_server_that_cannot_start_says_why() -> None:
    server = RedisServer(settings={"appendfsync": "sometimes"})
    try:
        with pytest.raises(BenchError, match="argument"):
            server.start()
    finally:
        server.close()


def test_a_missing_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "find_redis", lambda: None)
    with pytest.raises(BenchError, match="not installed"):
        RedisServer()
