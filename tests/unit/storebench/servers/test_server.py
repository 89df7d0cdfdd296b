"""A server of few lines: its folder, its port, and what happens when the port is taken."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, final

import pytest

from perdure.bench.errors import BenchError
from tests.support.database_servers import Pausable as Server

LISTENER = """
import pathlib, socket, sys
taken = pathlib.Path("taken")
if taken.exists() and taken.read_text() == sys.argv[1]:
    sys.exit("port taken")
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()[0].close()
"""


@final
class Listener(Server):
    NAME: ClassVar[str] = "Listener"
    PORT_TAKEN: ClassVar[str] = "port taken"

    def __init__(self, code: str = LISTENER) -> None:
        super().__init__()
        self._code = code
        self.folder = self._directory

    def take_port(self) -> None:
        """Let it find its port taken from now on."""
        (self.folder / "taken").write_text(str(self.port))

    def _command(self) -> Sequence[str]:
        return (sys.executable, "-c", self._code, str(self.port))

    def _is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True


def state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return stat[stat.rindex(")") + 2]


@pytest.mark.slow
def test_it_keeps_its_port_and_leaves_nothing_behind() -> None:
    with Listener() as server:
        port, first = server.port, server.pid
        assert server.folder.name.startswith("perdure-listener-")
        assert server.restart(kill=True) > 0
        assert server.restart() > 0
        assert server.port == port
        assert server.pid != first
    assert not server.folder.exists()


@pytest.mark.slow
def test_a_paused_server_goes_on_or_ends() -> None:
    with Listener() as server:
        server.pause()
        assert state(server.pid) == "T"
        server.resume()
        assert state(server.pid) != "T"
        server.pause()
        server.stop()
        server.stop()


@pytest.mark.slow
def test_a_port_that_was_taken_meanwhile_is_left_to_who_has_it() -> None:
    server = Listener()
    taken = server.port
    server.take_port()
    with server:
        assert server.port != taken


@pytest.mark.slow
def test_a_server_that_has_run_does_not_move() -> None:
    with Listener() as server:
        server.stop()
        server.take_port()
        with pytest.raises(BenchError, match=f"on port {server.port}: port taken"):
            server.start()


def test_one_that_cannot_start_shows_its_last_words_and_is_closed() -> None:
    server = Listener("raise SystemExit('no such setting')")
    with pytest.raises(BenchError, match=r"Listener does not start .*: no such setting"):
        server.__enter__()
    assert not server.folder.exists()
