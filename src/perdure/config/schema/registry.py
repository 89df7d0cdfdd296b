"""The registry of subscriptions and devices that other systems' workers read: ``registry``."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class RegistryConfig(Section, frozen=True):
    """The registry of subscriptions and devices that other systems' workers read."""

    url: Annotated[
        str,
        about(
            "Redis where this broker's clients and their subscriptions are mirrored; empty = off.",
            secret=True,
        ),
    ] = ""
    partitions: Annotated[
        int, about("Partitions, as all other workers have it.", ge=1, le=1 << 20)
    ] = 1024
    prefix: Annotated[str, about("Of all keys.")] = "nxx:"
    transport: Annotated[str, about("What its clients are connected by, for other workers.")] = (
        "mqtt"
    )
    interval_s: Annotated[int, about("How often changes are written.", unit="s", ge=1, le=3600)] = 1
