"""RabbitMQ with its MQTT plugin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from perdure.bench.peer import Launch, Peer, version_in_path
from perdure.bench.ports import free_port


def _launch(program: str, directory: Path, port: int) -> Launch:
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


PEER: Final = Peer(
    "rabbitmq",
    program_name="rabbitmq-server",
    # What is in the search path runs as another user, with the service's own files.
    folder="/usr/lib/rabbitmq/bin",
    version=version_in_path,
    durability="PUBACK after fsync of the classic durable queue, in batches",
    launch=_launch,
    speaks=(4,),
)
