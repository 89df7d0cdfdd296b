"""The client of the admin socket: errors become exit codes."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.admin.records.node import GetRates, GetStats
from perdure.admin.records.sessions import KickSession, ListSessions
from perdure.admin.records.storage import RotateLog
from perdure.cli import admin_client
from perdure.cli.admin_client import AdminClient
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.errors import PerdureError
from perdure.observe.admin_socket import SOCKET_NAME
from perdure.storage.rocksdb.directory import DirectoryLock


def connected(directory: Path) -> AdminClient:
    client = AdminClient.connect(directory)
    assert client is not None
    return client


def test_no_broker(tmp_path: Path) -> None:
    assert AdminClient.connect(tmp_path) is None
    assert AdminClient.connect(tmp_path / "nowhere") is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET_NAME))
    assert AdminClient.connect(tmp_path) is None


def test_calls_and_lists(running: Any, tmp_path: Path) -> None:
    running.rows = 4
    with connected(tmp_path) as client:
        assert client.call(KickSession(client_id="live")).action == "kicked"
        names = [row.client_id for row in client.items(ListSessions(prefix="l"))]
        assert names == ["live", "c0", "c1", "c2", "c3"]
        assert client.call(GetStats()).storage == "ok"
    kicked, *listed = running.asked
    assert kicked == KickSession(client_id="live")
    assert [(one.prefix, one.cursor) for one in listed] == [("l", ""), ("l", "2"), ("l", "4")]


def test_refusals_have_exit_codes(running: Any, tmp_path: Path, full_disk: PerdureError) -> None:
    running.refusal = full_disk
    with connected(tmp_path) as client:
        for request, code in (
            (KickSession(client_id="nobody"), ExitCode.NOT_FOUND),
            (KickSession(client_id=""), ExitCode.DATA),
            (RotateLog(), ExitCode.TEMPORARY),
            (GetRates(), ExitCode.CONFIG),
        ):
            with pytest.raises(CommandFailed) as caught:
                client.call(request)
            assert caught.value.exit_code is code
        with pytest.raises(CommandFailed, match="no space left"):
            list(client.items(ListSessions()))


def test_a_socket_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: socket.socket, _address: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    lock = DirectoryLock(tmp_path)
    with pytest.raises(CommandFailed) as caught:
        AdminClient.connect(tmp_path)
    assert caught.value.exit_code is ExitCode.NOT_PERMITTED
    assert AdminClient.connect(tmp_path, or_read=True) is None
    lock.release()
    # The socket was left by a broker that was killed: nobody is there to refuse anything.
    assert AdminClient.connect(tmp_path) is None


def test_a_broker_that_takes_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(_self: socket.socket, _address: str) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket.socket, "connect", wait)
    with pytest.raises(CommandFailed, match="does not answer: timed out") as caught:
        AdminClient.connect(tmp_path)
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    assert not caught.value.hint, "nothing was asked for"


@pytest.fixture
def listening(tmp_path: Path) -> Any:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / SOCKET_NAME))
        server.listen()
        yield server


def test_a_broker_that_hangs_up(listening: socket.socket, tmp_path: Path) -> None:
    def hang_up() -> None:
        accepted, _ = listening.accept()
        accepted.recv(1)
        accepted.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with connected(tmp_path) as client, pytest.raises(CommandFailed) as caught:
        client.call(GetStats())
    thread.join()
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


def test_a_broker_that_has_hung_up(listening: socket.socket, tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        accepted, _ = listening.accept()
        accepted.close()
        with pytest.raises(CommandFailed, match="does not answer"):
            client.call(GetStats())


def test_an_answer_that_ends_early(listening: socket.socket, tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        accepted, _ = listening.accept()
        accepted.sendall(b'{"result": {"client_id": "a"')
        accepted.shutdown(socket.SHUT_WR)
        with pytest.raises(CommandFailed, match="closed the connection"):
            client.call(GetStats())
        accepted.close()


def test_a_broker_that_is_silent(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 0.01)
    with connected(tmp_path) as client, pytest.raises(CommandFailed, match="answer") as caught:
        client.call(GetStats())
    assert "may still be done" in caught.value.hint
