"""The client of the admin socket: errors become exit codes."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import admin_client
from perdure.cli.admin_client import AdminClient
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.errors import PerdureError
from perdure.observe.admin_socket import SOCKET_NAME


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


def test_calls_and_rows(running: Any, tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        assert client.call("sessions.kick", client_id="live")["action"] == "kicked"
        rows = list(client.rows("sessions.list", prefix="l", state=""))
        assert rows == [{"client_id": "live", "state": "connected"}]
        assert client.call("stats") == {"storage": "ok"}
    assert running.asked == [("kick", "live"), ("sessions", "l", "")]


def test_refusals_have_exit_codes(running: Any, tmp_path: Path, full_disk: PerdureError) -> None:
    running.refusal = full_disk
    with connected(tmp_path) as client:
        for command, arguments, code in (
            ("sessions.kick", {"client_id": "nobody"}, ExitCode.NOT_FOUND),
            ("sessions.kick", {}, ExitCode.DATA),
            ("storage.rotate", {}, ExitCode.TEMPORARY),
            ("nonsense", {}, ExitCode.UNAVAILABLE),
        ):
            with pytest.raises(CommandFailed) as caught:
                client.call(command, **arguments)
            assert caught.value.exit_code is code
        with pytest.raises(CommandFailed, match="no space left"):
            list(client.rows("sessions.list"))


def test_a_socket_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: socket.socket, _address: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(CommandFailed) as caught:
        AdminClient.connect(tmp_path)
    assert caught.value.exit_code is ExitCode.NOT_PERMITTED


def test_a_broker_that_takes_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(_self: socket.socket, _address: str) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket.socket, "connect", wait)
    with pytest.raises(CommandFailed, match="does not answer: timed out") as caught:
        AdminClient.connect(tmp_path)
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


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
        client.call("stats")
    thread.join()
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


def test_a_broker_that_has_hung_up(listening: socket.socket, tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        accepted, _ = listening.accept()
        accepted.close()
        with pytest.raises(CommandFailed, match="does not answer"):
            client.call("stats")


def test_a_list_that_ends_early(listening: socket.socket, tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        accepted, _ = listening.accept()
        accepted.sendall(b'{"row": {"client_id": "a"}}\n{"row": ')
        rows = client.rows("sessions.list")
        assert next(rows) == {"client_id": "a"}
        accepted.recv(1000)
        accepted.close()
        with pytest.raises(CommandFailed, match="closed the connection"):
            next(rows)


def test_a_broker_that_is_silent(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 0.01)
    with connected(tmp_path) as client, pytest.raises(CommandFailed, match="does not answer"):
        client.call("stats")
