"""Bounds over all clients, or on the rate of one: the section `limits`."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import MIB, Section


@final
class LimitsConfig(Section, frozen=True):
    """Bounds over all clients, or on the rate of one."""

    connections_max: Annotated[int, about("Connections of the whole broker.", live=True, ge=1)] = (
        100_000
    )
    connections_per_ip_max: Annotated[
        int,
        about("Connections from one address (IPv6: from one /64); 0 = no limit.", live=True, ge=0),
    ] = 0
    connect_rate: Annotated[
        int, about("New connections per second; 0 = no limit.", live=True, ge=0)
    ] = 0
    incomplete_bytes_max: Annotated[
        int,
        about(
            "Bytes of packets over 64 KiB, of all clients, that have begun and are not complete; "
            "who has no room waits. One packet is always let in.",
            unit="bytes",
            ge=1 * MIB,
        ),
    ] = 16 * MIB
    connect_bytes_max: Annotated[
        int,
        about(
            "Bytes that wait for their turn, of all clients whose CONNECT was not looked at; who "
            "has no room is closed. 0 = no limit.",
            unit="bytes",
            ge=0,
        ),
    ] = 8 * MIB
    connects_waiting_max: Annotated[
        int,
        about(
            "Clients whose CONNECT waits for its turn; while there are so many nobody else is "
            "accepted, and the system's backlog keeps who comes. 0 = no limit.",
            ge=0,
        ),
    ] = 8_192
    publish_rate: Annotated[
        int, about("Messages per second from one connection; 0 = no limit.", live=True, ge=0)
    ] = 0
    publish_bytes_rate: Annotated[
        int,
        about("Bytes per second from one connection; 0 = no limit.", unit="bytes", live=True, ge=0),
    ] = 0
    subscribe_rate: Annotated[
        int,
        about(
            "SUBSCRIBE and UNSUBSCRIBE packets per second from one connection; 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 0
    content_filters_max: Annotated[
        int,
        about(
            "Distinct content filters of connected clients' subscriptions; a message on a topic "
            "is tried with each of those that subscribe to it. 0 = there are no content filters.",
            live=True,
            ge=0,
        ),
    ] = 10_000
    content_filter_bytes_max: Annotated[
        int,
        about(
            "Bytes of one content filter in a SUBSCRIBE, or stored.",
            unit="bytes",
            live=True,
            ge=2,
            le=64 * 1024,
        ),
    ] = 4096
    flapping_max: Annotated[
        int,
        about(
            "Takeovers and connections without a DISCONNECT of one client identifier within "
            "`flapping_window_s`, after which it is banned; 0 = never.",
            live=True,
            ge=0,
        ),
    ] = 1000
    flapping_window_s: Annotated[
        int, about("Time in which they are counted.", unit="s", live=True, ge=1)
    ] = 10
    flapping_ban_s: Annotated[
        int,
        about(
            "How long such a ban lasts; `perdure bans` lists and lifts it.",
            unit="s",
            live=True,
            ge=1,
        ),
    ] = 60
    sessions_max: Annotated[
        int, about("Sessions of the whole broker, connected or not; 0 = no limit.", live=True, ge=0)
    ] = 1_000_000
    sessions_per_user_max: Annotated[
        int,
        about(
            "Sessions of one user, connected or not; all anonymous clients are one user. "
            "0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 0
    will_bytes_max: Annotated[
        int,
        about(
            "Bytes of the wills of all connected clients, topics and properties included, without "
            "the first KiB of each; 0 = no limit.",
            unit="bytes",
            live=True,
            ge=0,
        ),
    ] = 8 * MIB
    subscriptions_max: Annotated[
        int,
        about(
            "Subscriptions of all sessions, connected or not (`session.subscriptions_max` bounds "
            "those of one); 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 10_000_000
    retained_messages_max: Annotated[
        int, about("Topics with a retained message; 0 = no limit.", live=True, ge=0)
    ] = 1_000_000
    retained_bytes_max: Annotated[
        int,
        about(
            "Bytes of all retained messages, topics and properties included; 0 = no limit.",
            unit="bytes",
            live=True,
            ge=0,
        ),
    ] = 4 * 1024 * 1024 * 1024
