"""Processes that are looked at, and processes of our own."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port
from perdure.bench.process import BrokerProcess, ProcessProbe
from tests.support.bounds import HANG_S

LISTENER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()[0].close()
"""


def listener(directory: Path) -> BrokerProcess:
    port = free_port()
    command = [sys.executable, "-c", LISTENER, str(port)]
    return BrokerProcess(command, host="127.0.0.1", port=port, directory=directory)


def test_this_process_has_used_cpu_and_memory() -> None:
    probe = ProcessProbe(os.getpid())
    assert probe.cpu_s() > 0
    now, peak = probe.memory_bytes()
    assert 1 << 20 < now <= peak


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(BenchError, match="no process"):
        ProcessProbe(2**22 + 1)


@pytest.mark.slow
def test_a_process_starts_restarts_and_ends(tmp_path: Path) -> None:
    process = listener(tmp_path)
    assert process.start() > 0
    first = process.pid
    probe = ProcessProbe(first)
    assert process.restart(kill=True) > 0
    assert process.pid != first
    assert probe.memory_bytes() == (0, 0)
    assert probe.cpu_s() == 0
    process.stop()
    process.stop()


LATE = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for _ in range(3):
    listener.accept()[0].close()
while True:
    client = listener.accept()[0]
    if client.recv(100) == b"hello":
        client.sendall(b"!")
    client.close()
"""


@pytest.mark.slow
def test_a_broker_that_listens_before_it_serves_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", LATE, str(port)]
    process = BrokerProcess(
        command, host="127.0.0.1", port=port, directory=tmp_path, greeting=b"hello"
    )
    process.start()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client:
            client.sendall(b"hello")
            assert client.recv(1) == b"!"
    finally:
        process.stop()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    process = BrokerProcess(
        ["no-such-broker"], host="127.0.0.1", port=free_port(), directory=tmp_path
    )
    with pytest.raises(BenchError, match="cannot start no-such-broker"):
        process.start()


def test_a_process_that_ends_at_once_shows_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('bad configuration')"]
    process = BrokerProcess(command, host="127.0.0.1", port=free_port(), directory=tmp_path)
    with pytest.raises(BenchError, match="bad configuration"):
        process.start()
