"""The broker under test, as a process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TypeAlias

from examples.demo.cluster import ClusterBroker
from perdure.bench.ports import free_port
from tests.support.process import BrokerProcess, ProcessError, perdure_command

Subject: TypeAlias = BrokerProcess | ClusterBroker
"""What is put to the test."""


def make_broker(kind: str, directory: Path, seed: str) -> Subject:
    """``perdure``, a ``cluster`` of it, or ``mosquitto`` to see another broker under the same test.

    Raises:
        ProcessError: mosquitto is not installed.
    """
    if kind == "cluster":
        return ClusterBroker(directory, seed)
    port = free_port()
    data = directory / "data"
    data.mkdir()
    if kind == "perdure":
        command = perdure_command(data, port)
    else:
        command = _mosquitto_command(data, port, directory / "mosquitto.conf")
    return BrokerProcess(command, port=port, log=directory / "broker.log")


def _mosquitto_command(data: Path, port: int, config: Path) -> list[str]:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        raise ProcessError("mosquitto is not installed")
    settings = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "persistence true",
        f"persistence_location {data}/",
        "max_queued_messages 0",
        "max_inflight_messages 1000",
        "set_tcp_nodelay true",
    ]
    if os.geteuid() == 0:
        # It would give up root's rights, and with them the access to the directory.
        settings.append("user root")
    config.write_text("\n".join(settings) + "\n", encoding="utf-8")
    return [program, "-c", str(config)]
