"""The process wrapper, on a listener of a few lines in place of a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.support.process import BrokerProcess, ProcessError, perdure_command

LISTENER = """
import os, socket, sys
# In one piece, and before anybody can connect: whoever finds the port open may kill at once.
os.write(1, b"listening\\n")
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""


def listener(directory: Path) -> BrokerProcess:
    port = free_port()
    command = [sys.executable, "-c", LISTENER, str(port)]
    return BrokerProcess(command, port=port, log=directory / "log")


async def test_it_starts_and_is_killed_and_starts_again(tmp_path: Path) -> None:
    process = listener(tmp_path)
    try:
        assert not process.listening.is_set()
        assert await process.start() > 0
        assert process.listening.is_set()
        await process.kill()
        assert not process.listening.is_set()
        with pytest.raises(ProcessError, match="has ended"):
            process.check()
        assert process.kill_count == 1
        await process.start()
        process.check()
    finally:
        assert await process.stop() == -15
    assert process.log_tail() == "  listening\n  listening"


async def test_one_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such setting')"]
    process = BrokerProcess(command, port=free_port(), log=tmp_path / "log")
    with pytest.raises(ProcessError, match="no such setting"):
        await process.start()
    assert await process.stop() == 1


async def test_it_imports_what_is_imported_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "import perdure, tests.support.disk; raise SystemExit('imported')"
    command = [sys.executable, "-c", program]
    process = BrokerProcess(command, port=free_port(), log=tmp_path / "log")
    with pytest.raises(ProcessError, match="imported"):
        await process.start()


async def test_one_that_never_started_can_be_stopped(tmp_path: Path) -> None:
    process = listener(tmp_path)
    assert await process.stop() is None
    with pytest.raises(ProcessError):
        await process.kill()
    assert process.log_tail() == ""


def test_the_command_names_directory_port_and_options(tmp_path: Path) -> None:
    command = perdure_command(tmp_path, 1884, "--set", "a.b=c")
    assert command[1:4] == ["-m", "perdure", "serve"]
    assert command[4:] == ["--data", str(tmp_path), "--bind", "127.0.0.1:1884", "--set", "a.b=c"]
