"""What the protocol allows: the section `mqtt`."""

from __future__ import annotations

from typing import Annotated, final

from perdure import limits
from perdure.config.fields import about
from perdure.config.schema.section import KIB, MIB, Section


@final
class MqttConfig(Section, frozen=True):
    """What the protocol allows; announced to MQTT 5.0 clients in CONNACK."""

    packet_size_max: Annotated[
        int,
        about(
            "Largest packet accepted.", unit="bytes", ge=1 * KIB, le=limits.REMAINING_LENGTH_MAX + 5
        ),
    ] = 16 * MIB
    connect_size_max: Annotated[
        int,
        about(
            "Largest CONNECT accepted, and AUTH before CONNACK: nobody knows yet who sends it. "
            "There are 4 KiB more, so that two fields of 65,535 bytes fit beside small ones.",
            unit="bytes",
            ge=1 * KIB,
            le=limits.REMAINING_LENGTH_MAX + 5,
        ),
    ] = 128 * KIB
    subscribe_filters_max: Annotated[
        int,
        about(
            "Topic filters that one SUBSCRIBE or UNSUBSCRIBE may have; more are refused with 0x97.",
            ge=1,
        ),
    ] = 4096
    properties_max: Annotated[
        int,
        about(
            "Properties that one packet may have, user properties included (5.0); more are refused "
            "with 0x97. The will's are counted by themselves.",
            ge=32,
        ),
    ] = 1024
    receive_maximum: Annotated[
        int,
        about(
            "QoS 1 and 2 messages that a client may have unacknowledged towards the broker.",
            ge=1,
            le=65_535,
        ),
    ] = 1024
    topic_alias_maximum: Annotated[
        int, about("Topic aliases that a client may set; 0 = none.", ge=0, le=65_535)
    ] = 128
    keep_alive_max_s: Annotated[
        int,
        about(
            "Longest keep alive. A client that asks for more, or for none, is given this one "
            "(5.0) or held to it (3.1.1); 0 = as the client asks.",
            unit="s",
            ge=0,
            le=65_535,
        ),
    ] = 0
    maximum_qos: Annotated[
        int, about("Highest QoS that a client may publish with.", ge=0, le=2)
    ] = 2
    retain_available: Annotated[bool, about("Accept retained messages.")] = True
    wildcard_subscription_available: Annotated[bool, about("Accept `+` and `#` in filters.")] = True
    shared_subscription_available: Annotated[bool, about("Accept `$share/` subscriptions.")] = True
    subscription_identifier_available: Annotated[
        bool, about("Accept subscription identifiers.")
    ] = True
    topic_levels_max: Annotated[
        int, about("Levels that a topic name or filter may have.", ge=1, le=65_536)
    ] = 200
    client_id_bytes_max: Annotated[
        int, about("Longest client identifier.", unit="bytes", ge=23, le=65_535)
    ] = 65_535
    allow_empty_client_id: Annotated[
        bool, about("Assign an identifier to a client that sends none.")
    ] = True
    connect_timeout_ms: Annotated[
        int,
        about(
            "Time in which CONNECT must arrive after the connection. Who then waits as long for "
            "the broker to decide hears `server busy` (0x89).",
            unit="ms",
            ge=1,
        ),
    ] = 10_000
    response_information: Annotated[
        str, about("Response information given to 5.0 clients that ask for it; empty = none.")
    ] = ""
