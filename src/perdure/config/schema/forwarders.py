"""Forwarders: the sections `forwarders.<name>`, and a line for each type in ``FORWARDER_TYPES``.

A new type is a module below ``perdure/forwarders/`` with
``open_output(settings, context) -> Output`` (``forwarders/output.py``), a section here, and a line
in the table. None is imported before a forwarder has its type: each may need an extra.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, final

import msgspec

from perdure.config.fields import about
from perdure.config.schema.section import DAY_S, KIB, MIB, Section


class ForwarderConfig(Section, frozen=True, tag_field="type"):
    """What every forwarder can be told."""

    filter: Annotated[
        tuple[str, ...],
        about("Topic filters of what is forwarded, without `$share`.", live=True),
    ] = ("#",)
    where: Annotated[
        str,
        about("A content filter (JSON) that messages must fulfil; empty = all.", live=True),
    ] = ""
    strip: Annotated[
        str, about("Beginning that a topic loses, such as `site/a/`, if it has it.", live=True)
    ] = ""
    topic: Annotated[
        str,
        about(
            "Topic at the target: `{topic}` is the message's own after `strip`, `{1}` its first "
            "level and so on.",
            live=True,
        ),
    ] = "{topic}"
    payload: Annotated[
        Literal["raw", "envelope"],
        about(
            "`raw` bytes, or an `envelope`: JSON with topic, offset, time, publisher, QoS, "
            "properties and payload.",
            live=True,
        ),
    ] = "raw"
    qos0: Annotated[
        bool,
        about(
            "Forward messages of QoS 0 too. They are recorded in the log for it, as "
            "`storage.record_qos0` does.",
            live=True,
        ),
    ] = False
    start: Annotated[
        Literal["now", "earliest"],
        about("Where a forwarder begins that is new: what comes from now on, or the whole log."),
    ] = "now"
    batch_messages: Annotated[
        int, about("Messages that are handed over at once, at most.", live=True, ge=1, le=10_000)
    ] = 500
    batch_bytes: Annotated[
        int,
        about("Payload of them, at most.", unit="bytes", live=True, ge=1 * KIB, le=64 * MIB),
    ] = 1 * MIB
    timeout_s: Annotated[
        int, about("How long a target may take for one batch.", unit="s", live=True, ge=1)
    ] = 30
    retry_max_s: Annotated[
        int,
        about("Longest pause between two attempts; the first are shorter.", unit="s", live=True,
              ge=1),
    ] = 30  # fmt: skip
    on_refused: Annotated[
        Literal["dead_letter", "stop"],
        about(
            "What becomes of a message that the target refuses for good (too large, not valid): "
            "it is published to `dead_letter` and passed over, or the forwarder stops there.",
            live=True,
        ),
    ] = "dead_letter"
    dead_letter: Annotated[
        str,
        about("Topic for refused messages; `{name}` is the forwarder. Empty = counted alone.",
              live=True),
    ] = "$dead/{name}"  # fmt: skip
    hold_s: Annotated[
        int,
        about(
            "How long beyond `retention.time_s` the log waits for the forwarder; 0 = not at all. "
            "`retention.bytes` and `retention.disk_policy` do not wait.",
            unit="s",
            live=True,
            ge=0,
        ),
    ] = 7 * DAY_S


@final
class MqttForwarderConfig(ForwarderConfig, frozen=True, tag="mqtt"):
    """Another broker, in both directions: a bridge."""

    url: Annotated[
        str,
        about(
            "`mqtt://user:password@host:1883`, `mqtts://` for TLS, `ws://` and `wss://`.",
            secret=True,
            live=True,
        ),
    ] = ""
    direction: Annotated[
        Literal["out", "in", "both"],
        about("To the other broker, from it, or both.", live=True),
    ] = "out"
    version: Annotated[
        Literal["5", "3.1.1"], about("MQTT version of the connection.", live=True)
    ] = "5"
    client_id: Annotated[
        str, about("At the other broker; empty = made of the broker's and the name.", live=True)
    ] = ""
    qos_max: Annotated[
        int, about("Messages go in either direction with this QoS at most.", live=True, ge=0, le=2)
    ] = 2
    window: Annotated[
        int, about("Messages in flight in each direction.", live=True, ge=1, le=65_535)
    ] = 1000
    keep_alive_s: Annotated[
        int, about("Keep Alive of the connection.", unit="s", live=True, ge=1, le=65_535)
    ] = 30
    session_expiry_s: Annotated[
        int,
        about("How long the other broker keeps our session.", unit="s", live=True, ge=1),
    ] = 30 * DAY_S
    remote_filter: Annotated[
        tuple[str, ...], about("Topic filters of what comes in.", live=True)
    ] = ("#",)
    remote_strip: Annotated[
        str, about("Beginning that the topic of what comes in loses.", live=True)
    ] = ""
    local_topic: Annotated[str, about("Topic here of what comes in, as `topic`.", live=True)] = (
        "{topic}"
    )
    ca_file: Annotated[
        str, about("PEM file of authorities to trust instead of the system's.", unit="path",
                   live=True)
    ] = ""  # fmt: skip
    certificate: Annotated[
        str, about("PEM file with our certificate chain.", unit="path", live=True)
    ] = ""
    private_key: Annotated[str, about("PEM file with its key.", unit="path", live=True)] = ""


@final
class KafkaForwarderConfig(ForwarderConfig, frozen=True, tag="kafka"):
    """A Kafka topic: one plain record for each message, once."""

    batch_messages: Annotated[
        int,
        about("Messages of one transaction, at most: each costs Kafka the same.", live=True, ge=1,
              le=10_000),
    ] = 5000  # fmt: skip
    batch_bytes: Annotated[
        int,
        about("Payload of them, at most.", unit="bytes", live=True, ge=1 * KIB, le=64 * MIB),
    ] = 4 * MIB
    bootstrap: Annotated[
        str, about("`host:port` of some of Kafka's brokers, with commas between.", live=True)
    ] = ""
    topic: Annotated[str, about("Kafka topic, which is made if it is not there.", live=True)] = ""
    key: Annotated[
        Literal["topic", "publisher", "none"],
        about("Key of records: what has one key stays in order, in one partition.", live=True),
    ] = "topic"
    application: Annotated[
        str, about("Whose topic it is; `perdure applications` sets it.", live=True)
    ] = ""
    groups: Annotated[tuple[str, ...], about("Consumer groups of the application.", live=True)] = ()
    declared_by: Annotated[
        str, about("Client that has declared the application, and alone may change it.", live=True)
    ] = ""
    partitions: Annotated[
        int, about("Of a topic that is made here.", live=True, ge=1, le=10_000)
    ] = 1
    replicas: Annotated[
        int, about("Of a topic that is made here, at most.", live=True, ge=1, le=100)
    ] = 3
    options: Annotated[
        tuple[str, ...],
        about(
            "Settings of librdkafka, `name=value`: TLS, SASL, `compression.type`.",
            secret=True,
            live=True,
        ),
    ] = ()


@final
class WebhookForwarderConfig(ForwarderConfig, frozen=True, tag="webhook"):
    """An HTTP service: batches as JSON, signed, tried again until they are taken."""

    url: Annotated[
        str, about("Given batches by POST, `https://` or `http://`.", secret=True, live=True)
    ] = ""
    secret: Annotated[
        str,
        about("Key of the signature (HMAC-SHA256); empty = none.", secret=True, live=True),
    ] = ""
    header_file: Annotated[
        str,
        about("File with lines `Name: value` that go with each request.", unit="path", live=True),
    ] = ""
    ca_file: Annotated[
        str,
        about("PEM file of authorities to trust instead of the system's.", unit="path", live=True),
    ] = ""


@final
class RedisForwarderConfig(ForwarderConfig, frozen=True, tag="redis"):
    """A Redis Stream: an entry for each message, once."""

    url: Annotated[
        str,
        about(
            "`redis://user:password@host:6379/0`, `rediss://` for TLS, `redis+cluster://a,b,c`.",
            secret=True,
            live=True,
        ),
    ] = ""
    key: Annotated[str, about("Of the stream; `{name}` is the forwarder.", live=True)] = (
        "perdure:{name}"
    )
    length_max: Annotated[
        int, about("Entries that the stream keeps, about; 0 = all.", live=True, ge=0)
    ] = 0


@final
class RegistryForwarderConfig(ForwarderConfig, frozen=True, tag="registry"):
    """Devices of other transports in a registry: a Redis Stream for each transport."""

    filter: Annotated[
        tuple[str, ...],
        about("Topic filters of changes, without `$share`; other topics have no channel.",
              live=True),
    ] = ("app/#",)  # fmt: skip
    url: Annotated[
        str,
        about(
            "Of the registry: `redis://user:password@host:6379/0`, `redis+cluster://a,b,c`.",
            secret=True,
            live=True,
        ),
    ] = ""
    partitions: Annotated[
        int, about("As all other workers have it.", live=True, ge=1, le=1 << 20)
    ] = 1024
    prefix: Annotated[str, about("Of all keys of the registry.", live=True)] = "nxx:"
    key: Annotated[str, about("Of the streams; `{transport}` is the transport.", live=True)] = (
        "nxx:transport:{transport}"
    )
    skip: Annotated[
        tuple[str, ...],
        about("Transports whose devices are served otherwise: those of brokers.", live=True),
    ] = ("mqtt",)
    length_max: Annotated[
        int, about("Entries that a stream keeps, about; 0 = all.", live=True, ge=0)
    ] = 0


@final
class PostgresForwarderConfig(ForwarderConfig, frozen=True, tag="postgres"):
    """A PostgreSQL table: a row for each message, once."""

    url: Annotated[
        str, about("`postgresql://user:password@host:5432/database`.", secret=True, live=True)
    ] = ""
    table: Annotated[
        str,
        about("Of the rows, with its schema if it has one; made if it is not there.", live=True),
    ] = "mqtt_messages"


@final
class ForwarderLine(msgspec.Struct, frozen=True, kw_only=True):
    """What others must know of a type of forwarder.

    Attributes:
        opens: ``module:name`` of what makes its output.
        settings: the class of its section.
        extra: of our package that it needs; empty = none.
    """

    opens: str
    settings: type[ForwarderConfig]
    extra: str = ""


FORWARDER_TYPES: Final[Mapping[str, ForwarderLine]] = {
    "mqtt": ForwarderLine(
        opens="perdure.forwarders.mqtt.output:open_output", settings=MqttForwarderConfig
    ),
    "kafka": ForwarderLine(
        opens="perdure.forwarders.kafka.output:open_output",
        settings=KafkaForwarderConfig,
        extra="kafka",
    ),
    "webhook": ForwarderLine(
        opens="perdure.forwarders.webhook:open_output",
        settings=WebhookForwarderConfig,
        extra="http-auth",
    ),
    "redis": ForwarderLine(
        opens="perdure.forwarders.redis:open_output", settings=RedisForwarderConfig, extra="redis"
    ),
    "registry": ForwarderLine(
        opens="perdure.forwarders.registry:open_output",
        settings=RegistryForwarderConfig,
        extra="redis",
    ),
    "postgres": ForwarderLine(
        opens="perdure.forwarders.postgres:open_output",
        settings=PostgresForwarderConfig,
        extra="postgres",
    ),
}
"""By the name that ``forwarders.<name>.type`` takes."""

if TYPE_CHECKING:
    Forwarders: TypeAlias = dict[str, ForwarderConfig]
else:
    # Of the table, so that a new type needs no second line.
    Forwarders = dict[
        str, functools.reduce(operator.or_, (each.settings for each in FORWARDER_TYPES.values()))
    ]


def type_of(settings: ForwarderConfig) -> str:
    """The name of a forwarder's type."""
    return str(settings.__struct_config__.tag)
