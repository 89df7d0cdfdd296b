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
    processes: Annotated[
        int, about("Processes that answer; each can use a core while the log is read.", ge=1, le=64)
    ] = 1
    reads_max: Annotated[
        int,
        about("Reads of the log at once in each process; more wait their turn.", ge=1, le=256),
    ] = 4
    connections_max: Annotated[
        int, about("Connections that each process holds at once.", ge=8, le=65_536)
    ] = 512
    page_bytes: Annotated[
        int,
        about(
            "Payload bytes after which a page of a read is sent.",
            unit="bytes",
            ge=64 * KIB,
            le=32 * MIB,
        ),
    ] = 8 * MIB
