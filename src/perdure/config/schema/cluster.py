"""Several nodes on one log in Kafka: the section `cluster`."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class ClusterConfig(Section, frozen=True):
    """Several nodes on one log in Kafka."""

    kafka: Annotated[
        str,
        about(
            "Kafka's bootstrap servers, `host:port` with commas between. Set, this broker is a "
            "node of a cluster; `cluster.name` and `node.name` must be set too."
        ),
    ] = ""
    name: Annotated[
        str,
        about("Name of the cluster, the same on all nodes; its topic is `perdure.NAME.log`."),
    ] = ""
    dead_after: Annotated[
        int,
        about(
            "Silence after which the others take a node for dead, by the log's time.",
            unit="s",
            ge=3,
            le=300,
        ),
    ] = 6
    start_timeout_s: Annotated[
        int,
        about(
            "How long a start waits for Kafka before it gives up; 0 = for as long as it takes.",
            unit="s",
            ge=0,
        ),
    ] = 0
    durability: Annotated[
        Literal["replicated", "fsync"],
        about(
            "What an acknowledgement means: `replicated` = in the memory of all in-sync replicas "
            "of the topic, two at least where there are three; `fsync` = on their disks."
        ),
    ] = "replicated"
    commit_interval_us: Annotated[
        int,
        about(
            "Least time between two records of a node while messages come by themselves, in place "
            "of `storage.commit_interval_us`: a record costs Kafka's brokers and every node more "
            "than the messages in it.",
            unit="us",
            ge=0,
            le=1_000_000,
        ),
    ] = 6000
    kafka_options: Annotated[
        tuple[str, ...],
        about(
            "Options of librdkafka as `name=value`: `security.protocol=SASL_SSL`, "
            "`sasl.username=...`.",
            secret=True,
        ),
    ] = ()
