"""Shared subscriptions: the section `shared`."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class SharedConfig(Section, frozen=True):
    """Shared subscriptions."""

    strategy: Annotated[
        Literal[
            "round_robin", "random", "sticky", "hash_publisher", "hash_topic", "least_inflight"
        ],
        about("Which member of a group is given the next message."),
    ] = "round_robin"
