"""Mochi MQTT: everything in memory.

Its module has two programs: one that reads a configuration file, and a smaller one with
options only, whose queues cannot be lifted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from perdure.bench.peer import Launch, Peer

_MOCHI_MODULE: Final = re.compile(rb"github\.com/mochi-mqtt/server/v2\t+v(\d+\.\d+\.\d+)")


def _launch(program: str, directory: Path, port: int) -> Launch:
    if not _takes_option(program, "-config"):
        command = [program, "-tcp", f"127.0.0.1:{port}", "-ws", "127.0.0.1:0"]
        return Launch([*command, "-info", "127.0.0.1:0"])
    text = (
        f'listeners:\n  - type: tcp\n    id: bench\n    address: "127.0.0.1:{port}"\n'
        "hooks:\n  auth:\n    allow_all: true\n"
        "logging:\n  level: WARN\n"
        "options:\n  capabilities:\n    maximum_clients: 100000\n"
        "    maximum_client_writes_pending: 1000000\n    maximum_inflight: 65535\n"
        "    receive_maximum: 1000\n    maximum_session_expiry_interval: 4294967295\n"
        "    maximum_qos: 2\n    retain_available: 1\n    wildcard_sub_available: 1\n"
        "    sub_id_available: 1\n    shared_sub_available: 1\n    topic_alias_maximum: 65535\n"
        "    minimum_protocol_version: 3\n"
    )
    return Launch([program, "-config", str(directory / "mochi.yaml")], files={"mochi.yaml": text})


def _installed() -> str | None:
    """What ``go install`` has made of Mochi's module: it calls the program ``cmd``."""
    go_path = Path(os.environ.get("GOPATH") or Path.home() / "go")
    for folder in (os.environ.get("GOBIN", ""), str(go_path / "bin")):
        for name in ("mochi", "cmd") if folder else ():
            found = shutil.which(name, path=folder)
            if found and _version(found):
                return found
    return None


def _version(program: str) -> str:
    """The version of the module that a Go program was built from, as the linker has noted it."""
    try:
        found = _MOCHI_MODULE.search(Path(program).read_bytes())
    except OSError:
        return ""
    return found[1].decode() if found else ""


def _takes_option(program: str, option: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - a program that was found by its name
            [program, "-h"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.split()[:1] == [option] for line in (done.stdout + done.stderr).splitlines())


PEER: Final = Peer(
    "mochi",
    program_name="mochi",
    installed=_installed,
    version=_version,
    durability="PUBACK from memory; keeps nothing on disk",
    launch=_launch,
    speaks=(4, 5),
)
