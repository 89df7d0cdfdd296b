"""Scrapes over real sockets: bounded in number, size and time, and made once for many."""

from __future__ import annotations

import contextlib
import gzip
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.config.schema import MetricsConfig
from perdure.observe import Metrics
from perdure.observe.metrics_server import OPENMETRICS_TYPE, Exposition, MetricsServer
from perdure.observe.metrics_text import MetricsText
from tests.support.bounds import HANG_S

Make = Callable[..., MetricsServer]


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def make(counts: Counter[str]) -> Iterator[Make]:
    made: list[MetricsServer] = []

    def build(knows: Callable[[str], bool] | None = None, **settings: Any) -> MetricsServer:
        server = MetricsServer(
            [socket.create_server(("127.0.0.1", 0))],
            MetricsText(Metrics(), version="1", backend="memory"),
            MetricsConfig(**settings),
            knows=knows,
            count=lambda status: counts.update([status]),
        )
        made.append(server)
        return server

    yield build
    for server in made:
        server.close()


def connect(server: MetricsServer, data: bytes = b"") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
    opened.sendall(data)
    return opened


def rest(opened: socket.socket) -> tuple[str, bytes]:
    """Head and body of the answer, until the end of the connection."""
    data = b""
    try:
        while part := opened.recv(65_536):
            data += part
    except ConnectionResetError:
        pass  # it was closed with bytes of ours unread
    finally:
        opened.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode(), body


def ask(server: MetricsServer, line: str = "GET /metrics HTTP/1.1", *headers: str) -> Any:
    request = "\r\n".join([line, "Host: x", *headers, "", ""])
    return rest(connect(server, request.encode()))


def test_it_serves_and_releases_its_port(make: Make, counts: Counter[str]) -> None:
    server = make()
    head, body = ask(server)
    assert head.startswith("HTTP/1.1 200 OK")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"perdure_bytes_sent", "perdure_build_info", "process_open_fds"} <= names
    head, zipped = ask(server, "GET /metrics?x=1 HTTP/1.1", "Accept-Encoding: gzip")
    assert "content-encoding: gzip" in head
    assert gzip.decompress(zipped).startswith(b"# HELP perdure_build_info")
    head, body = ask(
        server, "GET http://h/metrics HTTP/1.1", "Accept: application/openmetrics-text"
    )
    assert OPENMETRICS_TYPE in head
    assert body.endswith(b"# EOF\n")
    head, body = ask(server, "HEAD /metrics HTTP/1.0")
    assert (head.split()[1], body) == ("200", b"")
    server.close()
    with socket.create_server(("127.0.0.1", server.port)):
        pass
    assert counts == {"200": 4}


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x10\x0c\x00\x04MQTT\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000, 431),
        (b"GET /metrics HTTP/1.1\r\n" + b"a:b\r\n" * 3000 + b"\r\n", 431),
    ],
)
def test_what_is_no_scrape_is_told_so(
    make: Make, request_bytes: bytes, status: int, counts: Counter[str]
) -> None:
    server = make()
    opened = connect(server)
    with contextlib.suppress(ConnectionError):
        opened.sendall(request_bytes)
    head, _ = rest(opened)
    assert counts == {str(status): 1}
    if len(request_bytes) < 9000:
        assert head.split()[1] == str(status)
        assert ("allow: GET, HEAD" in head) == (status == 405)
    assert ask(server)[0].split()[1] == "200"


def test_a_token_is_asked_for(make: Make) -> None:
    server = make(knows=lambda header: header == "Bearer right")
    head, body = ask(server)
    assert "401" in head
    assert "www-authenticate: Bearer" in head
    assert b"metrics.token_file" in body
    assert "401" in ask(server, "GET /metrics HTTP/1.1", "Authorization: Bearer wrong")[0]
    assert "200" in ask(server, "GET /metrics HTTP/1.1", "AUTHORIZATION: Bearer right")[0]


def test_who_says_nothing_makes_room(make: Make, counts: Counter[str]) -> None:
    server = make(connections_max=4)
    idle = [connect(server, b"GET /met") for _ in range(12)]
    assert "200" in ask(server)[0]
    assert counts["evicted"] >= 8
    for each in idle:
        each.close()


def test_deadline(make: Make, counts: Counter[str]) -> None:
    server = make(timeout_s=1)
    silent, half = connect(server), connect(server, b"GET /metrics HTTP/1.1\r\n")
    assert rest(silent) == ("", b"")
    assert "408" in rest(half)[0]
    assert counts == {"timeout": 2, "408": 1}


def test_a_flood_makes_one_text() -> None:
    now = [100.0]
    metrics = Metrics()
    made = Exposition(
        MetricsText(metrics, version="1", backend="memory"), cache_ms=1000, clock=lambda: now[0]
    )
    first = made.text(is_open=False, zipped=False)
    metrics.bytes_sent = 99
    assert made.text(is_open=False, zipped=False) is first
    assert gzip.decompress(made.text(is_open=False, zipped=True)) == first
    now[0] += 1
    assert b"perdure_bytes_sent_total 99.0" in made.text(is_open=False, zipped=False)


def test_rate_of_connections_is_bounded(make: Make, counts: Counter[str]) -> None:
    server = make(connect_rate=3, timeout_s=30)
    opened = [connect(server, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(3)]
    for each in opened:
        assert "200" in rest(each)[0]
    begun = server._loop.time()
    assert "200" in ask(server)[0]
    assert server._loop.time() - begun > 0.05
