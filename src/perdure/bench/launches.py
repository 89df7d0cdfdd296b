"""How brokers are started for a measurement: program, arguments, configuration files.

Each is stated as its users would write it. Limits that would turn messages away (queue lengths,
inflight windows) are lifted; nothing is tuned.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import perdure
from perdure.bench.process import free_port

_MOCHI_MODULE: Final = re.compile(rb"github\.com/mochi-mqtt/server/v2\t+v(\d+\.\d+\.\d+)")


@final
class Launch:
    """How to start a broker.

    Attributes:
        command: program and arguments.
        files: configuration files to write, by name.
        environment: variables.
    """

    __slots__ = ("command", "environment", "files")

    def __init__(
        self,
        command: list[str],
        *,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self.files = dict(files or {})
        self.environment = dict(environment or {})


def launch_perdure(program: str, directory: Path, port: int) -> Launch:
    serve = ["serve", "--data", str(directory / "data"), "--bind", f"127.0.0.1:{port}"]
    # The child runs the code that runs here, wherever it was imported from.
    environment = {"PYTHONPATH": str(Path(perdure.__file__).parents[1])}
    return Launch(
        [*command_of(program), *serve],
        environment=environment if program == sys.executable else None,
    )


def launch_mosquitto(program: str, directory: Path, port: int) -> Launch:
    text = (
        f"listener {port} 127.0.0.1\n"
        "allow_anonymous true\n"
        "max_inflight_messages 1000\n"
        "max_queued_messages 0\n"
        "persistence true\n"
        f"persistence_location {directory}/\n"
    )
    # Started by root, it would become a user that cannot write into the directory.
    text += "user root\n"
    return Launch(
        [program, "-c", str(directory / "mosquitto.conf")], files={"mosquitto.conf": text}
    )


def launch_nats(program: str, directory: Path, port: int) -> Launch:
    text = (
        "server_name: bench\n"
        "listen: 127.0.0.1:-1\n"
        f'jetstream {{ store_dir: "{directory}/jetstream" }}\n'
        f"mqtt {{ listen: 127.0.0.1:{port}, max_ack_pending: 1000 }}\n"
    )
    return Launch([program, "-c", str(directory / "nats.conf")], files={"nats.conf": text})


def launch_rabbitmq(program: str, directory: Path, port: int) -> Launch:
    text = (
        f"listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{port}\n"
        "mqtt.allow_anonymous = true\nmqtt.default_user = guest\nmqtt.default_pass = guest\n"
        "mqtt.prefetch = 1000\nmqtt.subscription_ttl = 86400000\n"
    )
    epmd_port = str(free_port())
    environment = {
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        # Of the system's own service: user, paths, limits.
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": epmd_port,
        # The cookie that the node and its tools share is made there.
        "HOME": str(directory),
    }
    # Erlang would start the port mapper as a daemon that outlives the broker; started here, it
    # belongs to the broker's group of processes and ends with it.
    command = ["/bin/sh", "-c", 'epmd -port "$1" & exec "$0"', program, epmd_port]
    files = {"rabbitmq.conf": text, "enabled_plugins": "[rabbitmq_mqtt].\n"}
    return Launch(command, files=files, environment=environment)


def launch_rumqttd(program: str, directory: Path, port: int) -> Launch:
    """rumqttd: everything in memory; its two protocol versions have listeners of their own."""
    text = (
        "id = 0\n\n[router]\nid = 0\nmax_connections = 20000\n"
        "max_outgoing_packet_count = 200\nmax_segment_size = 104857600\n"
        "max_segment_count = 10\n\n"
        f'[v4.1]\nname = "v4-1"\nlisten = "127.0.0.1:{port}"\nnext_connection_delay_ms = 0\n'
        "[v4.1.connections]\nconnection_timeout_ms = 60000\nmax_payload_size = 268435455\n"
        "max_inflight_count = 1000\ndynamic_filters = true\n"
    )
    return Launch(
        [program, "--quiet", "--config", str(directory / "rumqttd.toml")],
        files={"rumqttd.toml": text},
    )


def launch_mochi(program: str, directory: Path, port: int) -> Launch:
    """Mochi MQTT: everything in memory.

    Its module has two programs: one that reads a configuration file, and a smaller one with
    options only, whose queues cannot be lifted.
    """
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


def mochi_program() -> str | None:
    """What ``go install`` has made of Mochi's module: it calls the program ``cmd``."""
    go_path = Path(os.environ.get("GOPATH") or Path.home() / "go")
    for folder in (os.environ.get("GOBIN", ""), str(go_path / "bin")):
        for name in ("mochi", "cmd") if folder else ():
            found = shutil.which(name, path=folder)
            if found and mochi_version(found):
                return found
    return None


def rumqttd_program() -> str | None:
    """Where ``cargo install`` puts it."""
    cargo_home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("rumqttd", path=str(cargo_home / "bin"))


def mochi_version(program: str) -> str:
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


def command_of(program: str) -> list[str]:
    """A program as a command: our own interpreter stands for the package that runs in it."""
    return [program, "-m", "perdure"] if program == sys.executable else [program]
