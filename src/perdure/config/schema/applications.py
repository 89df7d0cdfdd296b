"""Applications: the section `applications`."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class ApplicationsConfig(Section, frozen=True):
    """Applications, each with a Kafka topic of all that it subscribes to."""

    bootstrap: Annotated[
        str, about("`host:port` of some of Kafka's brokers; empty = there are no applications.")
    ] = ""
    options: Annotated[
        tuple[str, ...], about("Settings of librdkafka, `name=value`: TLS, SASL.", secret=True)
    ] = ()
    prefix: Annotated[str, about("Of the names of their Kafka topics.")] = "perdure.app."
    partitions: Annotated[
        int,
        about(
            "Of a topic that is made: so many consumers of one group share an application's work.",
            ge=1,
            le=10_000,
        ),
    ] = 6
    replicas: Annotated[int, about("Of a topic that is made, at most.", ge=1, le=100)] = 3
    declared: Annotated[
        tuple[str, ...],
        about("Applications: `name=filter`, or several filters with spaces between."),
    ] = ()
    from_clients: Annotated[
        bool,
        about(
            "Clients may declare applications in CONNECT, with the user properties "
            "`perdure-application` and `perdure-application-filter`."
        ),
    ] = False
