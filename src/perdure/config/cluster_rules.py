"""What the settings of a cluster's node must be to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from perdure.config.bind import Problem
from perdure.config.document import Origin
from perdure.config.schema import Config
from perdure.config.schema.cluster import ClusterConfig

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""What a topic of Kafka may be named."""

_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")

_NODE_BYTES_MAX: Final = 255


def options_of(cluster: ClusterConfig) -> dict[str, str]:
    """``cluster.kafka_options`` by name."""
    pairs = (option.partition("=") for option in cluster.kafka_options)
    return {name.strip(): value for name, _, value in pairs}


def cluster_problems(config: Config, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """Every relation that does not hold."""
    cluster = config.cluster
    if not cluster.kafka:
        for path in ("name", "durability", "dead_after", "start_timeout_s", "kafka_options"):
            if f"cluster.{path}" in origins:
                yield Problem(
                    f"cluster.{path}",
                    "is set, but this broker is no node of a cluster",
                    hint="cluster.kafka names the servers that have its log",
                )
                return
        if config.node.advertise:
            yield Problem("node.advertise", "is for nodes of a cluster", hint="set cluster.kafka")
        return
    yield from log_problems(cluster)
    yield from _node(config, origins)
    if config.storage.backend != "rocksdb":
        yield Problem(
            "storage.backend",
            "a node of a cluster keeps its view of the log in rocksdb",
            hint="leave storage.backend out",
        )


def log_problems(cluster: ClusterConfig) -> Iterator[Problem]:
    """What is wrong with how the log is named."""
    for server in cluster.kafka.split(","):
        if not _SERVER.fullmatch(server.strip()):
            yield Problem(
                "cluster.kafka",
                f"{server!r} is no address of a server",
                hint="kafka1:9092,kafka2:9092,kafka3:9092",
            )
    if not _NAME.fullmatch(cluster.name):
        what = f"{cluster.name!r} is no name for a topic" if cluster.name else "is not set"
        yield Problem(
            "cluster.name", what, hint="letters, digits, dots, dashes; the same on all nodes"
        )
    for option in cluster.kafka_options:
        if not option.partition("=")[1]:
            yield Problem("cluster.kafka_options", f"{option!r} has no =", hint="name=value")


def _node(config: Config, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    name = config.node.name
    if "node.name" not in origins:
        yield Problem("node.name", "is not set", hint="each node of a cluster has its own")
    elif not name.strip() or "\0" in name or len(name.encode()) > _NODE_BYTES_MAX:
        yield Problem("node.name", f"{name!r} is no name for a node", hint="such as n1")
    if config.node.advertise and not _SERVER.fullmatch(config.node.advertise):
        yield Problem(
            "node.advertise", f"{config.node.advertise!r} is no address", hint="mqtt1.example:1883"
        )
