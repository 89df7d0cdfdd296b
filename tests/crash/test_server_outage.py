"""A server that is not there, not there yet, not for us, or gone for a while."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.database_servers import PostgresServer, RedisServer
from tests.wire.harness import Options
from tests.wire.packets import Kind
from tests.wire.process_broker import ProcessBroker

OWNER = "{perdure}:owner"
"""Key that says who may write."""

UNAVAILABLE, TEMPORARY, CONFIG = 69, 75, 78

pytestmark = [pytest.mark.slow]

BACKENDS = [
    pytest.param("redis", marks=pytest.mark.redis),
    pytest.param("postgres", marks=pytest.mark.postgres),
]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Which kind of server."""
    kind: str = request.param
    return kind


@pytest.fixture
def server(backend: str) -> Iterator[PostgresServer | RedisServer]:
    """A running server."""
    with RedisServer() if backend == "redis" else PostgresServer(durable=False) as server:
        yield server


def settings(backend: str, url: str, **more: object) -> dict[str, str]:
    """Settings of a broker on a server."""
    found = {"storage.backend": backend, f"storage.{backend}.url": url}
    found.update({f"storage.{backend}.{name}": str(value) for name, value in more.items()})
    return found


def serving(path: Path, given: dict[str, str]) -> list[str]:
    """The command of a broker."""
    command = [sys.executable, "-m", "perdure", "serve", "--data", str(path)]
    command += ["--bind", f"127.0.0.1:{free_port()}"]
    for name, value in given.items():
        command += ["--set", f"{name}={value}"]
    return command


def serve(path: Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A broker that is expected to end by itself."""
    command = serving(path, given)
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user = (parts.username or "") + ":" + password
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}"))


def start_when_waited_for(server: PostgresServer | RedisServer, broker: ProcessBroker) -> None:
    for _ in range(200):
        if "storage.waiting" in broker.log_tail():
            break
        broker.elapse(0.1)
    server.start()


def publishes(broker: ProcessBroker, name: str) -> bool:
    """Whether a new client is let in and its message is taken."""
    peer = broker.peer()
    peer.send(peer.build.connect(name, clean=True))
    answer = peer.receive()
    if answer is not None and not answer.reason:
        peer.send(peer.build.publish("t", b"taken", qos=1, packet_id=1))
        answer = peer.receive()
        if answer is not None and answer.kind is Kind.PUBACK and answer.reason < 0x80:
            return True
    broker.elapse(0.1)
    return False


def test_a_server_that_is_absent_is_told_in_one_line(tmp_path: Path, backend: str) -> None:
    scheme = "redis" if backend == "redis" else "postgresql"
    url = f"{scheme}://user:hush-hush@127.0.0.1:{free_port()}/0"
    result = serve(tmp_path / "data", settings(backend, url, connect_timeout_s=1))
    assert result.returncode == UNAVAILABLE, result.stderr
    last = [line for line in result.stderr.splitlines() if line.startswith("perdure")]
    assert len(last) == 1, result.stderr
    assert "waited 1 s" in last[0]
    assert "Traceback" not in result.stderr
    assert "hush-hush" not in result.stderr


def test_a_wrong_password_is_a_wrong_configuration(
    tmp_path: Path, backend: str, server: PostgresServer | RedisServer
) -> None:
    wrong = with_password(server.url, "not-this-one")
    result = serve(tmp_path / "data", settings(backend, wrong))
    assert result.returncode == CONFIG, result.stderr
    assert "Traceback" not in result.stderr
    assert "not-this-one" not in result.stderr


def test_a_second_broker_is_refused(
    tmp_path: Path, backend: str, server: PostgresServer | RedisServer
) -> None:
    (tmp_path / "first").mkdir()
    first = ProcessBroker(tmp_path / "first", Options(settings=settings(backend, server.url)))
    first.start()
    try:
        result = serve(tmp_path / "second", settings(backend, server.url))
        assert result.returncode == TEMPORARY, result.stderr
        assert "in use by another broker" in result.stderr
        first.connect("a", expiry=100).expect_nothing()
    finally:
        first.close_peers()
        first.close()


def test_a_server_that_comes_later_is_waited_for(tmp_path: Path, backend: str) -> None:
    with RedisServer() if backend == "redis" else PostgresServer(durable=False) as server:
        broker = ProcessBroker(tmp_path, Options(settings=settings(backend, server.url)))
        broker.port = free_port()  # while the server still has its own
        server.kill()
        later = threading.Thread(target=start_when_waited_for, args=(server, broker))
        later.start()
        broker.start()
        later.join()
        assert "storage.waiting" in broker.log_tail()
        broker.close()


def test_a_server_that_stalls_is_back_pressure(
    tmp_path: Path, backend: str, server: PostgresServer | RedisServer
) -> None:
    """PUBACK waits for it, for two seconds here, and comes then; nobody is sent away."""
    broker = ProcessBroker(tmp_path, Options(settings=settings(backend, server.url)))
    broker.start()
    try:
        peer = broker.connect("a", expiry=100)
        server.pause()
        peer.send(peer.build.publish("t", b"x", qos=1, packet_id=1))
        peer.expect_silence(2.0)
        server.resume()
        peer.expect_packet(Kind.PUBACK, packet_id=1, reason=0x10)
    finally:
        broker.close_peers()
        broker.close()


def test_an_outage_that_lasts_refuses_and_ends_by_itself(
    tmp_path: Path, backend: str, server: PostgresServer | RedisServer
) -> None:
    given = settings(backend, server.url, outage_max_s=1)
    broker = ProcessBroker(tmp_path, Options(settings=given))
    broker.start()
    try:
        broker.connect("sub", expiry=100).subscribe(("t", 1))
        broker.close_peers()
        server.kill()
        peer = broker.connect("pub", clean=True)
        peer.send(peer.build.publish("t", b"in doubt", qos=1, packet_id=1))
        assert (answer := peer.receive()) is None or answer.reason >= 0x80
        server.start()
        for attempt in range(100):
            if publishes(broker, f"pub{attempt}"):
                break
        else:
            raise AssertionError(f"it takes nothing any more:\n{broker.log_tail()}")
        subscriber = broker.connect("sub", clean=False, expiry=100, session_present=True)
        payloads = []
        while not payloads or payloads[-1] != b"taken":
            packet = subscriber.take(Kind.PUBLISH)
            payloads.append(packet.payload)
            subscriber.acknowledge(packet)
        assert payloads in ([b"taken"], [b"in doubt", b"taken"])
    finally:
        broker.close_peers()
        broker.close()


@pytest.mark.redis
def test_a_broker_whose_server_another_one_has_taken_ends(tmp_path: Path) -> None:
    """Also if it has nothing to write: whoever started it is told, once."""
    with RedisServer() as server:
        given = settings("redis", server.url)
        first = subprocess.Popen(
            serving(tmp_path / "first", given), stderr=subprocess.PIPE, text=True
        )
        assert first.stderr is not None
        # Taken while it starts it would end too, with other words.
        while '"listener.started"' not in first.stderr.readline():
            assert first.poll() is None
        assert server.command("GET", OWNER) is not None
        server.command("SET", OWNER, "somebody else:1")
        _, told = first.communicate(timeout=HANG_S)
    assert first.returncode == TEMPORARY, told
    assert told.count('"code":"fenced"') == 1, told
    assert "perdure: another broker has written to" in told
    assert "hint: " in told
