"""Bounds over all clients, or on the rate of one: the section `limits`."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


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
    publish_rate: Annotated[
        int, about("Messages per second from one connection; 0 = no limit.", live=True, ge=0)
    ] = 0
    publish_bytes_rate: Annotated[
        int,
        about("Bytes per second from one connection; 0 = no limit.", unit="bytes", live=True, ge=0),
    ] = 0
    subscribe_rate: Annotated[
        int,
        about("SUBSCRIBE packets per second from one connection; 0 = no limit.", live=True, ge=0),
    ] = 0
