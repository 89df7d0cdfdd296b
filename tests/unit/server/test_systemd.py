"""What the service manager is told."""

from __future__ import annotations

import configparser
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.server.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(tmp_path / "notify"))
        opened.settimeout(5)
        yield opened


def test_messages(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())
    notifier.ready("Serving")
    notifier.reloading(monotonic_us=17)
    notifier.alive()
    notifier.stopping("Bye")
    assert [manager.recv(200) for _ in range(4)] == [
        b"READY=1\nSTATUS=Serving",
        b"RELOADING=1\nMONOTONIC_USEC=17\nSTATUS=Reloading",
        b"WATCHDOG=1",
        b"STOPPING=1\nSTATUS=Bye",
    ]


def test_abstract_address() -> None:
    name = f"perdure-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(5)
        Notifier(f"@{name}").alive()
        assert manager.recv(100) == b"WATCHDOG=1"


def test_nobody_to_tell(tmp_path: Path) -> None:
    Notifier().ready("Serving")
    Notifier(str(tmp_path / "absent")).ready("Serving")


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 0.0),
        ({"NOTIFY_SOCKET": "/x"}, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000"}, 15.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 15.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_watchdog_interval(environ: dict[str, str], interval_s: float) -> None:
    assert Notifier.from_environment(environ, pid=7).watchdog_interval_s == interval_s


def test_the_unit_fits_what_the_broker_does() -> None:
    unit = Path(__file__).parents[3] / "deploy" / "systemd" / "perdure.service"
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    service = parser["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillSignal"] == "SIGTERM"
    assert service["WatchdogSec"]
    assert int(service["LimitNOFILE"]) >= 1_000_000
    assert service["RestartPreventExitStatus"] == "64 77 78"
