"""What the service manager is told."""

from __future__ import annotations

import configparser
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.config.load import load
from perdure.server.http_part import STOP_TIMEOUT_S
from perdure.server.lifecycle import DRAIN_TIMEOUT_S
from perdure.server.systemd import Notifier
from tests.support.bounds import HANG_S


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(tmp_path / "notify"))
        opened.settimeout(HANG_S)
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
        manager.settimeout(HANG_S)
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
    # A port in use, an absent server, a full disk: again, and without an end to it.
    prevented = [ExitCode.USAGE, ExitCode.DATA, ExitCode.NOT_PERMITTED, ExitCode.CONFIG]
    assert service["RestartPreventExitStatus"] == " ".join(str(int(code)) for code in prevented)
    assert parser["Unit"]["StartLimitIntervalSec"] == "0"
    # The HTTP processes are the broker's to stop.
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"].rstrip("s")) > DRAIN_TIMEOUT_S + STOP_TIMEOUT_S
    assert service["StateDirectoryMode"] == "0700"
    # Python replaces files with their owner kept: that may be refused, and must not kill.
    assert service["SystemCallErrorNumber"] == "EPERM"


def test_the_guide_and_the_unit_name_the_same_things() -> None:
    root = Path(__file__).parents[3]
    guide = (root / "docs" / "howto" / "systemd.md").read_text()
    unit = (root / "deploy" / "systemd" / "perdure.service").read_text()
    for line in guide.splitlines():
        for name in re.findall(r"deploy/systemd/[\w.]+", line):
            assert (root / name).is_file(), name
    start = re.search("ExecStart=(.*)", unit)
    assert start is not None
    program, *options = start[1].split()
    assert program == "/usr/local/lib/perdure/bin/perdure"
    assert "python3 -m venv /usr/local/lib/perdure\n" in guide
    for path in options[2::2]:
        assert path in guide, path
    sysusers = (root / "deploy" / "systemd" / "perdure.sysusers").read_text()
    user = re.search("^User=(.*)$", unit, re.MULTILINE)
    assert user is not None
    assert f"\nu {user[1]} " in sysusers


def test_the_configuration_of_the_guide_is_one() -> None:
    file = Path(__file__).parents[3] / "deploy" / "systemd" / "perdure.yaml"
    loaded = load(file, environ={})
    assert loaded.warnings == ()
