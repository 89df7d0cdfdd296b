"""Reading from a broker equals reading its directory, through everything that HTTP does to it."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError, PerdureError, StorageCorrupt, StorageUnavailable
from perdure.pipeline import remote as remote_log
from perdure.pipeline.address import Remote
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions, parse_options
from perdure.pipeline.patience import Patience
from perdure.pipeline.remote import RemoteLog, fetch_cursors
from tests.unit.pipeline.logs import SECOND, START, append, open_log
from tests.unit.web.asgi import TOKEN
from tests.unit.web.child import WebProcess

pytest.importorskip("pyarrow")
pytest.importorskip("uvicorn")
from perdure.pipeline.log_source import Part, plan, read

COLUMNS = ["offset", "topic", "payload", "published_at"]
TOPICS = [f"d/{n % 7}/{n % 3}" for n in range(5_000)] + ["$SYS/x", "d", "/", "d//t"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "db"
    database = open_log(path)
    append(database, TOPICS, at=START)
    database.rotate(START + 100 * SECOND)
    append(database, TOPICS[:100], at=START + 200 * SECOND)
    database.close()
    return path


@pytest.fixture(scope="module")
def web(data: Path) -> Iterator[WebProcess]:
    with WebProcess(data, page_bytes=64 * 1024) as process:
        yield process


def remote(url: str, **others: Any) -> Remote:
    return Remote(url, token=TOKEN, **{"wait_s": 0, **others})


def parts_of(options: ReadOptions, narrowing: Narrowing | None = None) -> list[Part]:
    with opened(options) as index:
        parts = plan(index, options, narrowing or Narrowing())
    return pickle.loads(pickle.dumps(parts))  # type: ignore[no-any-return]


def rows(parts: list[Part]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in read(part, COLUMNS) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "narrowing"),
    [
        ({}, Narrowing()),
        ({"filter_sets": (("d/+/1",),)}, Narrowing()),
        ({"filter_sets": (("$SYS/#", "d/#"),)}, Narrowing((("d/1/#", "$SYS/x"),))),
        ({"after_offset": START + 5_000, "until_offset": START + 150 * SECOND}, Narrowing()),
        ({}, Narrowing(published_from=START + 2 * SECOND, published_until=START + 4 * SECOND)),
        ({"filter_sets": (("no/such",),)}, Narrowing()),
        ({"where": '{"$payload":{"$gte":4990}}'}, Narrowing()),
    ],
)
@pytest.mark.parametrize("compression", ["", "zstd"])
def test_rows_equal_those_of_the_directory(
    web: WebProcess, data: Path, options: dict[str, Any], narrowing: Narrowing, compression: str
) -> None:
    local = ReadOptions(str(data), rows_per_partition=2_000, **options)
    away = msgspec.structs.replace(local, path="", remote=remote(web.url, compression=compression))
    here, there = parts_of(local, narrowing), parts_of(away, narrowing)
    assert [part.slices for part in there] == [part.slices for part in here]
    assert rows(there) == rows(here)


def test_structures_equal_those_of_the_directory(
    web: WebProcess, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_log, "ITEMS_MAX", 3)  # Pages that are smaller than they need be.
    with (
        opened(ReadOptions(str(data))) as here,
        opened(ReadOptions("", remote=remote(web.url))) as there,
    ):
        for info in here.generations():
            found = there.patterns(info.generation)
            assert found == here.patterns(info.generation)
            assert len(found) > 3 or info.generation > 1
        with pytest.raises(ConfigError, match="there is no generation 9"):
            there.patterns(9)


def test_a_token_is_in_no_text(web: WebProcess) -> None:
    (part, *_) = parts_of(ReadOptions("", remote=remote(web.url)))
    assert TOKEN not in repr(part)
    assert TOKEN not in str(part.remote)


@pytest.mark.parametrize(
    ("token", "problem"),
    [("", "wants a token"), ("x" * 40, "refused the token")],
)
def test_a_wrong_token(web: WebProcess, token: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        RemoteLog(Remote(web.url, token=token))
    assert "tokenFile" in caught.value.hint
    assert "x" * 40 not in caught.value.message + caught.value.hint


def test_generations_that_were_dropped(web: WebProcess) -> None:
    (part, *_) = parts_of(ReadOptions("", remote=remote(web.url)))
    gone = msgspec.structs.replace(part.slices[0], generation=9)
    with pytest.raises(StorageUnavailable, match=r"generation 9 of .* was dropped"):
        list(read(msgspec.structs.replace(part, slices=(gone,)), COLUMNS))


def test_a_filter_that_is_none(web: WebProcess) -> None:
    (part, *_) = parts_of(ReadOptions("", remote=remote(web.url)))
    with pytest.raises(ConfigError, match="where: a: no operator"):
        list(read(msgspec.structs.replace(part, where='{"a":{}}'), COLUMNS))


def test_another_database(web: WebProcess) -> None:
    (part, *_) = parts_of(ReadOptions("", remote=remote(web.url)))
    with pytest.raises(ConfigError, match="another database"):
        list(read(msgspec.structs.replace(part, database_id="x"), COLUMNS))


# -- a network that does what it likes -----------------------------------------------------


class Relay:
    """Passes bytes on to a broker, and lets the answer of some connections end early."""

    def __init__(self, port: int, cut_after: Callable[[int], int | None]) -> None:
        self._target = port
        self._cut_after = cut_after
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            left = self._cut_after(self.connections)
            with client, socket.create_connection(("127.0.0.1", self._target)) as server:
                up = threading.Thread(target=self._pump, args=(client, server, None), daemon=True)
                up.start()
                self._pump(server, client, left)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, left: int | None) -> None:
        try:
            while left is None or left > 0:
                data = source.recv(65_536 if left is None else min(left, 65_536))
                if not data:
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize("cut", [0, 100, 3_000, 70_000, 150_000])
def test_an_answer_that_was_cut_goes_on_where_it_ended(
    web: WebProcess, data: Path, cut: int
) -> None:
    relay = Relay(web.port, lambda number: None if number % 4 == 0 else cut)
    options = ReadOptions("", remote=remote(relay.url, wait_s=60))
    with opened(options, patient=True) as index:
        parts = plan(index, options, Narrowing())
    assert rows(parts) == rows(parts_of(ReadOptions(str(data))))
    assert relay.connections > 3
    relay.close()


def test_a_broker_that_goes_and_comes_back(data: Path) -> None:
    with WebProcess(data) as process:
        options = ReadOptions("", rows_per_partition=1_024, remote=remote(process.url, wait_s=60))
        parts = parts_of(options)
        found = rows(parts[:1])
        process.kill()
        process.start()
        # Another process, another view: the same rows.
        found += rows(parts[1:])
    assert found == rows(parts_of(ReadOptions(str(data), rows_per_partition=1_024)))


def answering(answer: bytes) -> Iterator[str]:
    """A server that gives one answer to everything."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(65_536)
                client.sendall(answer)

    threading.Thread(target=run, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()


def page(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@pytest.mark.parametrize(
    ("answer", "kind", "problem"),
    [
        (page("200 OK", b"<html>hello</html>"), ConfigError, "is not the HTTP interface"),
        (page("404 Not Found", b"nothing"), ConfigError, "is not the HTTP interface"),
        (page("200 OK", b'{"status":"ok"}'), ConfigError, "is not the HTTP interface"),
        (b"\x20\x02\x00\x00", ConfigError, "is not the HTTP interface"),
        (b"", StorageUnavailable, "closed the connection without an answer"),
        (
            page("500 Oops", b'{"code":"storage_corrupt","message":"torn"}'),
            StorageCorrupt,
            "torn",
        ),
        (
            page("501 No", b'{"code":"arrow_missing","message":"no arrow","details":{"hint":"h"}}'),
            ConfigError,
            "no arrow",
        ),
        (page("503 Full", b"Service Unavailable"), StorageUnavailable, r"not available now \(503"),
        (page("502 Bad Gateway", b"<html>"), StorageUnavailable, r"not available now \(502"),
        (
            page("503 Busy", b'{"code":"not_ready","message":"not now"}'),
            StorageUnavailable,
            "not now",
        ),
    ],
)
def test_what_is_no_broker_or_a_sick_one(
    answer: bytes, kind: type[PerdureError], problem: str
) -> None:
    for url in answering(answer):
        with pytest.raises(kind, match=problem):
            RemoteLog(remote(url))


def test_no_tls_where_it_was_expected(web: WebProcess) -> None:
    with pytest.raises(ConfigError, match="does not speak TLS"):
        RemoteLog(remote(web.url.replace("http:", "https:")))
    with pytest.raises(ConfigError, match=r"caFile nowhere\.pem"):
        RemoteLog(remote("https://127.0.0.1:1", ca_file="nowhere.pem"))


def test_tls(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from tests.unit.net.helpers import issue

    authority = issue(tmp_path, "ca", "Test authority")
    issue(tmp_path, "server", "localhost", authority)
    files = {"certificate": f"{tmp_path}/server.pem", "private_key": f"{tmp_path}/server.key"}
    with WebProcess(data, **files) as process:
        url = process.url.replace("http:", "https:")
        trusting = remote(url, ca_file=f"{tmp_path}/ca.pem")
        assert rows(parts_of(ReadOptions("", remote=trusting))) == rows(
            parts_of(ReadOptions(str(data)))
        )
        with pytest.raises(ConfigError, match="TLS that can be trusted") as caught:
            RemoteLog(remote(url))
        assert "caFile" in caught.value.hint
        # Its port answers nothing to plain HTTP.
        with pytest.raises(StorageUnavailable, match="closed the connection"):
            RemoteLog(remote(process.url))


def wait_for_ever(patience: Patience, away: Any) -> None:
    while True:
        patience.wait(away)


def test_patience_ends() -> None:
    from perdure.pipeline import patience as module

    slept: list[float] = []
    patience = Patience(5, clock=lambda: sum(slept), sleep=slept.append)
    with pytest.raises(StorageUnavailable, match="gone"):
        wait_for_ever(patience, module.Unreachable("gone"))
    assert slept[:4] == [0.1, 0.2, 0.5, 1.0]
    assert 5 <= sum(slept) < 8
    patience.reset()
    patience.wait(module.Unreachable("gone"))
    assert slept[-1] == 0.1
    with pytest.raises(StorageUnavailable):
        wait_for_ever(patience, module.Unreachable("busy", is_busy=True))
    assert sum(slept) > module.BUSY_WAIT_S


def test_the_first_address_that_answers_is_asked(web: WebProcess, data: Path) -> None:
    options = parse_options(
        {"url": f"http://127.0.0.1:1, {web.url}", "token": TOKEN, "timeout": "0s"}, 0
    )
    assert options.remote is not None
    parts = parts_of(options)
    assert {part.remote.url for part in parts if part.remote} == {web.url}
    assert rows(parts) == rows(parts_of(ReadOptions(str(data))))
    assert fetch_cursors(options.remote).broken == ()
    away = parse_options({"url": "http://127.0.0.1:1,http://127.0.0.1:2", "timeout": "0s"}, 0)
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:2"):
        parts_of(away)
