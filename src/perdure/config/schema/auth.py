"""Who may connect, and who may do what: the section `auth`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

import msgspec

from perdure.config.fields import about
from perdure.config.schema.auth_methods import AUTH_METHODS, MethodConfig, TokensAuthConfig
from perdure.config.schema.section import Section

if TYPE_CHECKING:
    _Methods = Section
else:
    _Methods = msgspec.defstruct(
        "_Methods",
        [
            (name, line.settings, line.settings())
            for name, line in AUTH_METHODS.items()
            if not line.is_built_in
        ],
        bases=(Section,),
        frozen=True,
        kw_only=True,
    )


@final
class AuthConfig(_Methods, frozen=True):
    """Who may connect, and who may do what."""

    chain: Annotated[
        tuple[str, ...],
        about(
            "Ways to authenticate, in the order in which they are asked: each says yes or no, or "
            f"leaves it to the next one. {', '.join(AUTH_METHODS)}."
        ),
    ] = ("certificate", "password", "anonymous")

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
    client_id_binding: Annotated[
        Literal["user", "none"],
        about(
            "Who may resume, discard or take over a session: the user that it was opened for "
            "(`user`; anonymous clients count as one user, superusers may have every session), or "
            "whoever knows its client identifier (`none`). With `none` a session passes to the "
            "user that connects.",
            live=True,
        ),
    ] = "user"
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
        about(
            "Verifications that wait for a thread; beyond it, one of the address with most of them "
            "is refused as `server busy` (0x89).",
            live=True,
            ge=1,
        ),
    ] = 1000
    verify_pending_per_address_max: Annotated[
        int,
        about(
            "Of them, for one address (IPv6: one /64); beyond it the oldest is refused with 0x97. "
            "0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 100
    verify_pending_per_user_max: Annotated[
        int,
        about(
            "Of them, for different passwords of one user name from one address; beyond it the "
            "oldest is refused with 0x97. 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 8
    verify_cache_max: Annotated[
        int, about("Users whose last good password is remembered (hashed) in memory.", ge=0)
    ] = 10_000
    failures_max: Annotated[
        int,
        about(
            "Wrong passwords or SCRAM proofs of one user name from one address within "
            "`failures_window_s`, after which that name is banned from there; 0 = never.",
            live=True,
            ge=0,
        ),
    ] = 100
    failures_per_address_max: Annotated[
        int,
        about(
            "The same for all user names from one address (IPv6: one /64), after which passwords "
            "from there are refused; clients that have logged in before are not; 0 = never.",
            live=True,
            ge=0,
        ),
    ] = 1000
    failures_window_s: Annotated[
        int, about("Time in which failures are counted.", unit="s", live=True, ge=1)
    ] = 60
    failures_ban_s: Annotated[
        int,
        about(
            "How long such a temporary ban lasts; `perdure bans` lists and lifts it.",
            unit="s",
            live=True,
            ge=1,
        ),
    ] = 60
    acl_cache_bytes: Annotated[
        int,
        about(
            "Memory for decisions by `acl_file` that are remembered, over all clients.",
            unit="bytes",
            live=True,
            ge=0,
        ),
    ] = 16 * 1024 * 1024

    @property
    def token_store(self) -> TokensAuthConfig:
        """Where login tokens are, whether a chain takes them or not."""
        section = self.method("tokens")
        assert isinstance(section, TokensAuthConfig)
        return section

    def method(self, name: str) -> MethodConfig:
        """The section of a way to authenticate that is not the broker's own."""
        section: MethodConfig = getattr(self, name)
        return section
