"""Who may connect, and who may do what: the section `auth`."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class AuthConfig(Section, frozen=True):
    """Who may connect, and who may do what."""

    allow_anonymous: Annotated[
        Literal["loopback", "always", "never"],
        about(
            "Who may connect without credentials: clients on this machine, everyone, nobody.",
            live=True,
        ),
    ] = "loopback"
    password_file: Annotated[
        str,
        about(
            "Users and their hashes, SCRAM entries included, as `perdure passwd` writes them; "
            "empty = none.",
            unit="path",
            live=True,
        ),
    ] = ""
    acl_file: Annotated[
        str,
        about("Access rules; empty = every client may use every topic.", unit="path", live=True),
    ] = ""
    superusers: Annotated[
        tuple[str, ...],
        about(
            "Users that `acl_file` does not bind: they may use every topic but publish to `$SYS`. "
            "A name counts only if a password, a certificate or SCRAM proved it.",
            live=True,
        ),
    ] = ()
    ban_file: Annotated[
        str,
        about(
            "Bans, as `perdure bans` writes them; empty = `bans` in the data directory.",
            unit="path",
            live=True,
        ),
    ] = ""
    verify_threads: Annotated[int, about("Threads that verify passwords.", ge=1, le=64)] = 2
    verify_queue_max: Annotated[
        int,
        about("Verifications waiting before a connection is refused as `server busy`.", ge=1),
    ] = 1000
    verify_cache_max: Annotated[
        int, about("Users whose last good password is remembered (hashed) in memory.", ge=0)
    ] = 10_000
