"""What a process ends with, and what it says then, as a service manager sees it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command
from tests.support.volume import MEBIBYTE, SmallVolume, VolumesUnavailable

NOBODY = 65_534


def serve(*options: str, powerless: bool = False) -> subprocess.CompletedProcess[str]:
    """A broker that is expected to end by itself.

    Args:
        options: of the command.
        powerless: root without root's capabilities, as any other user.
    """
    # The interpreter may be where other users cannot go.
    before = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if powerless else []
    if powerless and (os.geteuid() != 0 or shutil.which("setpriv") is None):
        pytest.skip("needs root and setpriv")
    return subprocess.run(
        [*before, sys.executable, "-m", "perdure", "serve", *options],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def said(result: subprocess.CompletedProcess[str]) -> str:
    """The one message, with its remedy, that stands behind the log."""
    assert "Traceback" not in result.stderr, result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 2, result.stderr
    assert lines[0].startswith("perdure: ")
    assert lines[1].startswith("hint: ")
    return "\n".join(lines)


def test_a_port_that_is_taken_is_temporary(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        any_port = ["--data", str(tmp_path / "data"), "--bind", "127.0.0.1:0"]
        for options in (
            ["--data", str(tmp_path / "data"), "--bind", bind],
            [*any_port, "--set", f"metrics.bind={bind}"],
        ):
            result = serve(*options)
            assert result.returncode == 75, result.stderr
            assert f"cannot listen on {bind}" in said(result)


def test_a_directory_that_cannot_be_written_is_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "data", NOBODY, NOBODY)
    for name in ("data", "data/below"):
        result = serve("--data", str(tmp_path / name), "--bind", "127.0.0.1:0", powerless=True)
        assert result.returncode == 78, result.stderr
        assert "cannot be written" in said(result)
        assert "it belongs to nobody; make it root's" in said(result)


def test_a_port_that_is_not_permitted_is_not(tmp_path: Path) -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 81:
        pytest.skip("every port is permitted here")
    result = serve("--data", str(tmp_path / "data"), "--bind", "127.0.0.1:81", powerless=True)
    assert result.returncode == 77, result.stderr
    assert "CAP_NET_BIND_SERVICE" in said(result)


@pytest.mark.parametrize("path", ["", "  ", "/", "a-file"])
def test_what_is_no_data_directory(tmp_path: Path, path: str) -> None:
    if path == "a-file":
        path = str(tmp_path / path)
        Path(path).write_text("x")
    result = serve("--data", path, "--bind", "127.0.0.1:0")
    assert result.returncode == 78, result.stderr
    assert "storage.path" in said(result)


@pytest.mark.slow
def test_a_disk_that_is_too_full_to_start_says_what_it_needs(tmp_path: Path) -> None:
    try:
        volume = SmallVolume(tmp_path, size_bytes=16 * MEBIBYTE)
    except VolumesUnavailable as error:
        pytest.skip(error.message)
    try:
        for left in (0, 16 * 1024):
            volume.load(volume.free_bytes - left)
            result = serve("--data", str(volume.path / "data"), "--bind", "127.0.0.1:0")
            assert result.returncode == 75, result.stderr
            text = said(result)
            assert "the start needs about" in text
            assert f"the file system {volume.path} has 0 MiB free" in text
            volume.unload()
    finally:
        volume.close()


@pytest.mark.slow
async def test_a_budget_that_is_used_up_is_told_from_the_start(tmp_path: Path) -> None:
    """By the log, by ``perdure status``, and to who publishes; subscribers are served."""
    port, data, log = free_port(), tmp_path / "data", tmp_path / "log"
    serving = perdure_command(data, port, "--set", "retention.disk_bytes_max=1")
    broker = BrokerProcess(serving, port=port, log=log)
    await broker.start()
    try:
        code, told = await _run("status", "--data", str(data), "--json")
        assert code == 75, told
        found = json.loads(told)
        assert found["storage"] == "refusing"
        assert "retention.disk_bytes_max is 1" in found["storage_reason"]
        address = ["-h", "127.0.0.1", "-p", str(port), "-t", "t"]
        code, told = await _run("pub", *address, "-m", "x", "-q", "1")
        assert code == 69, told
        assert "0x97" in told
        code, told = await _run("pub", *address, "-m", "x")
        assert code == 0, told
        broker.check()
        assert '"event":"disk.full"' in log.read_text()
    finally:
        assert await broker.stop() == 0


async def _run(*arguments: str) -> tuple[int | None, str]:
    """A command's exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "perdure", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(HANG_S):
        told, _ = await process.communicate()
    return process.returncode, told.decode()
