"""The HTTP interface: the section `http`."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import KIB, MIB, Section


@final
class HttpConfig(Section, frozen=True):
    """The HTTP interface: health, and the log for Spark on other machines."""

    bind: Annotated[
        str,
        about(
            "`host:port` that serves `/api/v1`; empty = off. The default port is 18083; port 0 "
            "lets the system choose.",
            unit="address",
        ),
    ] = ""
    token_file: Annotated[
        str,
        about(
            "File with the tokens that may read, one on a line, each 32 characters or more; read "
            "again when it changes. Empty = `http.token` in the data directory, made with a "
            "random token at the first start.",
            unit="path",
        ),
    ] = ""
    certificate: Annotated[
        str, about("PEM file with the certificate chain; empty = no TLS.", unit="path")
    ] = ""
    private_key: Annotated[
        str, about("PEM file with the private key; required with `certificate`.", unit="path")
    ] = ""
    proxies: Annotated[
        tuple[str, ...],
        about(
            "Addresses and networks of proxies before the dashboard and the API. What they add to "
            "`X-Forwarded-For` is the address that failed logins are counted for and that the "
            "audit has; without it that is the proxy's own, and somebody who guesses passwords "
            "keeps out all who come through it."
        ),
    ] = ()
    login_tokens: Annotated[
        bool,
        about(
            "Tokens of `auth.tokens.store` are taken as bearer tokens and cookies: to publish to "
            "the topics that they may write, and to read messages of those that they may read."
        ),
    ] = False
    login_idle_s: Annotated[
        int,
        about(
            "A login to the dashboard ends after so long without a request that a person has "
            "made; pages that refresh themselves do not count.",
            unit="s",
            ge=60,
            le=604_800,
        ),
    ] = 3_600
    login_total_s: Annotated[
        int,
        about(
            "A login to the dashboard ends after so long in any case.",
            unit="s",
            ge=60,
            le=2_592_000,
        ),
    ] = 43_200
    processes: Annotated[
        int, about("Processes that answer; each can use a core while the log is read.", ge=1, le=64)
    ] = 1
    reads_max: Annotated[
        int, about("Reads of the log at once in each process; more wait their turn.", ge=1, le=256)
    ] = 4
    connections_max: Annotated[
        int,
        about(
            "Connections that each process holds at once. For one more, the one goes that has "
            "waited longest without a whole request.",
            ge=8,
            le=65_536,
        ),
    ] = 512
    head_bytes_max: Annotated[
        int,
        about(
            "Longest request line and headers; longer ones are answered with 431.",
            unit="bytes",
            ge=1 * KIB,
            le=1 * MIB,
        ),
    ] = 16 * KIB
    head_timeout_s: Annotated[
        int,
        about(
            "Time for TLS, and then for the request line and headers; 408 after that.",
            unit="s",
            ge=1,
            le=3_600,
        ),
    ] = 10
    body_timeout_s: Annotated[
        int, about("Time for the body of a request; 408 after that.", unit="s", ge=1, le=3_600)
    ] = 30
    idle_timeout_s: Annotated[
        int, about("How long a connection may wait for its next request.", unit="s", ge=1, le=3_600)
    ] = 30
    send_timeout_s: Annotated[
        int,
        about(
            "A client that takes nothing of its answer for so long is cut off.",
            unit="s",
            ge=1,
            le=3_600,
        ),
    ] = 60
    page_bytes: Annotated[
        int,
        about(
            "Payload bytes after which a page of a read is sent.",
            unit="bytes",
            ge=64 * KIB,
            le=32 * MIB,
        ),
    ] = 8 * MIB
