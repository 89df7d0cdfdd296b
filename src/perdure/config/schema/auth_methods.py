"""The ways to authenticate: a line for each in ``AUTH_METHODS``, and their sections below ``auth``.

A new one is a module below ``perdure/auth_methods/`` with a function
``open_method(settings, context) -> AuthMethod`` (``broker/auth/method.py``), and a line here. What
it can be told is below ``auth.<name>``: what every method has (``MethodConfig``), or, as
``settings`` of its line, a section of its own. None is imported before a chain names it: each may
need an extra that others do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, final

import msgspec

from perdure.config.fields import about
from perdure.config.schema.section import KIB, Section


class MethodConfig(Section, frozen=True):
    """A way to authenticate that `auth.chain` may name."""

    timeout_ms: Annotated[
        int,
        about(
            "Time for one answer; after it the client is refused as `server unavailable` (0x88).",
            unit="ms",
            ge=1,
        ),
    ] = 5000
    pending_max: Annotated[
        int,
        about(
            "Questions under way at once; beyond it clients are refused as `server busy` (0x89).",
            ge=1,
        ),
    ] = 1000


class LookupConfig(MethodConfig, frozen=True):
    """A method that asks a server, and asks it again for clients that are connected."""

    recheck_s: Annotated[
        int,
        about(
            "How often it is asked again whether a connected client still may be there, and what "
            "it may do; a reload (SIGHUP) asks at once. 0 = only then.",
            unit="s",
            ge=0,
        ),
    ] = 300
    breaker_failures: Annotated[
        int,
        about(
            "Failures in a row after which what is asked is left alone for `breaker_s`: clients "
            "are refused at once (0x88) meanwhile.",
            ge=1,
        ),
    ] = 5
    breaker_s: Annotated[
        int, about("How long, before one question tries it again.", unit="s", ge=1)
    ] = 10


@final
class JwtConfig(MethodConfig, frozen=True):
    """JSON Web Tokens as credentials. One of `jwks_url`, `public_key_file` and `secret_file`."""

    token_in: Annotated[
        Literal["password", "username"], about("Field of CONNECT that the token is in.")
    ] = "password"  # noqa: S105 - the name of a field
    algorithms: Annotated[
        tuple[str, ...],
        about(
            "Signatures that are accepted: HS256, HS384, HS512 (with `secret_file` alone), RS256, "
            "RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA."
        ),
    ] = ("RS256", "ES256", "EdDSA")
    jwks_url: Annotated[
        str, about("Where the issuer publishes its keys (RFC 7517), `https://` or `http://`.")
    ] = ""
    public_key_file: Annotated[str, about("PEM file with one public key.", unit="path")] = ""
    secret_file: Annotated[
        str, about("File with the secret of HS256 and its like, 32 bytes or more.", unit="path")
    ] = ""
    refresh_s: Annotated[int, about("How often the keys are fetched anew.", unit="s", ge=1)] = 300
    refresh_min_s: Annotated[
        int,
        about(
            "Least time between two fetches because a token names a key that is not known.",
            unit="s",
            ge=1,
        ),
    ] = 10
    stale_max_s: Annotated[
        int,
        about(
            "How long keys hold that could not be fetched anew; after it tokens are refused.",
            unit="s",
            ge=1,
        ),
    ] = 86_400
    withdrawn_keys: Annotated[
        Literal["disconnect", "keep"],
        about(
            "Clients that are connected by a token whose key is published no more, or is not in "
            "its file after a reload: disconnect them, or keep them until their token ends."
        ),
    ] = "disconnect"
    issuer: Annotated[str, about("What `iss` must be; empty = anything.")] = ""
    audience: Annotated[str, about("What `aud` must be or hold; empty = anything.")] = ""
    leeway_s: Annotated[
        int, about("Difference of clocks that `exp` and `nbf` allow for.", unit="s", ge=0, le=300)
    ] = 0
    require_expiry: Annotated[bool, about("Refuse tokens without `exp`.")] = True
    username_claim: Annotated[str, about("Claim that is the user name.")] = "sub"
    check_username: Annotated[
        bool, about("The user name of CONNECT must be that of the token (not if it is in there).")
    ] = False
    client_id_claim: Annotated[
        str, about("Claim that the client identifier must equal; empty = none.")
    ] = ""
    acl_claim: Annotated[
        str,
        about(
            "Claim with what the client may do; a token without it then allows nothing that "
            "`acl_file` does not allow. Empty = tokens say nothing about it."
        ),
    ] = ""
    token_bytes_max: Annotated[int, about("Longest token.", unit="bytes", ge=256, le=65_535)] = (
        8 * KIB
    )


@final
class HttpAuthConfig(LookupConfig, frozen=True):
    """A service of yours that is asked by HTTP."""

    url: Annotated[
        str, about("Asked for each CONNECT, by POST with JSON, `https://` or `http://`.")
    ] = ""
    acl_url: Annotated[
        str,
        about(
            "Asked for what a client that was let in may do, and every `recheck_s` whether it "
            "still may be there; empty = the answer of `url` says what it may do, once."
        ),
    ] = ""
    header_file: Annotated[
        str,
        about("File with lines `Name: value` that go with each request.", unit="path"),
    ] = ""
    ca_file: Annotated[
        str, about("PEM file of authorities to trust instead of the system's.", unit="path")
    ] = ""
    connections_max: Annotated[int, about("Connections to the service.", ge=1, le=1000)] = 32
    answer_bytes_max: Annotated[int, about("Longest answer.", unit="bytes", ge=1 * KIB)] = 256 * KIB
    cache_s: Annotated[
        int,
        about("How long a yes to the same question is remembered; 0 = not at all.", unit="s", ge=0),
    ] = 0
    cache_max: Annotated[int, about("Answers that are remembered.", ge=1)] = 10_000


class StoreConfig(LookupConfig, frozen=True):
    """A method that looks users up in a server, with hashes as `perdure passwd` writes them."""

    unknown_user: Annotated[
        Literal["deny", "ignore"],
        about("A user name that is not there is refused, or left to the next method of the chain."),
    ] = "deny"
    verify_cache_max: Annotated[
        int, about("Good passwords that are remembered (hashed) in memory; 0 = none.", ge=0)
    ] = 10_000
    acl_rows_max: Annotated[int, about("Most rules of one user.", ge=1, le=100_000)] = 1000


@final
class PostgresAuthConfig(StoreConfig, frozen=True):
    """Users and rules in PostgreSQL."""

    url: Annotated[str, about("`postgresql://user:password@host:5432/database`.", secret=True)] = (
        "postgresql://127.0.0.1:5432/perdure"
    )
    user_query: Annotated[
        str,
        about(
            "Given the user name as `$1` and the client identifier as `$2`, where it uses them: "
            "rows with `password_hash`, and `is_superuser` if it likes. No row = unknown user."
        ),
    ] = "SELECT password_hash, is_superuser FROM mqtt_user WHERE username = $1"
    acl_query: Annotated[
        str,
        about(
            "The same for what the user may do: rows with `permission` (read, write, readwrite, "
            "deny) and `topic`. Empty = `acl_file` alone says it."
        ),
    ] = ""
    notify_channel: Annotated[
        str,
        about(
            "Channel of NOTIFY whose payload is a user name that has changed (empty: all have); "
            "its clients are looked at again at once. Empty = none."
        ),
    ] = ""
    connections_max: Annotated[int, about("Connections to the server.", ge=1, le=100)] = 4


@final
class RedisAuthConfig(StoreConfig, frozen=True):
    """Users and rules in Redis: a hash for each user, and one for its rules."""

    url: Annotated[
        str,
        about(
            "`redis://user:password@host:6379/0`, `rediss://` for TLS, `redis+cluster://a,b,c`.",
            secret=True,
        ),
    ] = "redis://127.0.0.1:6379/0"
    user_key: Annotated[
        str,
        about(
            "Key of a user's hash, with fields `password_hash` and, if it likes, `is_superuser` "
            "(1 or 0). `%u` is the user name, `%c` the client identifier."
        ),
    ] = "mqtt_user:%u"
    acl_key: Annotated[
        str,
        about(
            "Key of the hash of its rules: field = topic filter, value = read, write, readwrite or "
            "deny. Empty = `acl_file` alone says what it may do."
        ),
    ] = ""


@final
class TokensAuthConfig(LookupConfig, frozen=True):
    """Opaque tokens of a token store, which `perdure tokens` issues."""

    store: Annotated[
        str,
        about(
            "A Redis URL (as of `auth.redis.url`), or the file of an embedded store.",
            secret=True,
        ),
    ] = ""
    layout: Annotated[
        str,
        about(
            "How tokens are kept on Redis: planned, json, packed, hash, partitioned:256 or "
            "partitioned:65536."
        ),
    ] = "planned"
    prefix: Annotated[str, about("Of all keys on Redis; empty = that of the layout.")] = ""
    token_in: Annotated[
        Literal["password", "username"], about("Field of CONNECT that the token is in.")
    ] = "password"  # noqa: S105 - the name of a field
    check_username: Annotated[
        bool, about("A user name in CONNECT must be the token's identity.")
    ] = True
    recheck_s: Annotated[
        int,
        about(
            "How often it is looked whether the token of a connected client still holds; a reload "
            "(SIGHUP) looks at once. 0 = only then.",
            unit="s",
            ge=0,
        ),
    ] = 60
    maintain_s: Annotated[
        int,
        about("How often expired tokens are removed; 0 = somebody else does that.", unit="s", ge=0),
    ] = 600


@final
class LdapAuthConfig(LookupConfig, frozen=True):
    """Users of an LDAP directory; the broker binds as each with its password."""

    url: Annotated[str, about("`ldaps://host:636`, or `ldap://host:389` with `start_tls`.")] = ""
    start_tls: Annotated[bool, about("Begin TLS on an `ldap://` connection.")] = False
    plain: Annotated[bool, about("Let passwords go to an `ldap://` server in clear text.")] = False
    ca_file: Annotated[
        str, about("PEM file of authorities to trust instead of the system's.", unit="path")
    ] = ""
    user_dn: Annotated[
        str,
        about("Name of a user's entry, `uid=%u,ou=people,dc=example,dc=org`; or `search_base`."),
    ] = ""
    search_base: Annotated[str, about("Where users' entries are searched; or `user_dn`.")] = ""
    search_filter: Annotated[
        str,
        about(
            "Which entry is a user's; `%u` is the user name, `%c` the client identifier. "
            "`(&(uid=%u)(memberOf=cn=mqtt,ou=groups,dc=example,dc=org))` asks for a group too."
        ),
    ] = "(uid=%u)"
    bind_dn: Annotated[str, about("As whom is searched; empty = anonymously.")] = ""
    bind_password: Annotated[str, about("Password of `bind_dn`.", secret=True)] = ""
    unknown_user: Annotated[
        Literal["deny", "ignore"],
        about("Who is not found by the search is refused, or left to the next method."),
    ] = "deny"
    connections_max: Annotated[int, about("Questions to the server at once.", ge=1, le=100)] = 8
    cache_s: Annotated[
        int,
        about("How long a right password is remembered (hashed); 0 = not at all.", unit="s", ge=0),
    ] = 0
    cache_max: Annotated[int, about("Right passwords that are remembered.", ge=1)] = 10_000


@final
class OcspAuthConfig(LookupConfig, frozen=True):
    """Client certificates that their authority's responder is asked about (OCSP)."""

    issuer_file: Annotated[
        str,
        about("PEM file with the authorities, in most cases that of `client_ca`.", unit="path"),
    ] = ""
    url: Annotated[
        str, about("The responder, `http://` or `https://`; empty = the one in the certificate.")
    ] = ""
    unavailable: Annotated[
        Literal["refuse", "accept"],
        about("Without an answer clients are refused (0x88), or let in with a line in the log."),
    ] = "refuse"
    identifies: Annotated[
        bool,
        about(
            "The common name of a good certificate is the user name; false = the next method of "
            "the chain says who it is, and nobody asks again while the client is connected."
        ),
    ] = True
    digest: Annotated[
        Literal["sha1", "sha256"], about("Digest that names the issuer in questions.")
    ] = "sha1"
    cache_s: Annotated[
        int,
        about("How long an answer is remembered, at most as long as it says.", unit="s", ge=0),
    ] = 3600


@final
class MethodLine(msgspec.Struct, frozen=True, kw_only=True):
    """What others must know of a way to authenticate.

    Attributes:
        opens: ``module:name`` of what makes it; empty = it is the broker's own.
        extra: of our package that it needs; empty = none.
        settings: the class of its section.
    """

    opens: str = ""
    extra: str = ""
    settings: type[MethodConfig] = MethodConfig

    @property
    def is_built_in(self) -> bool:
        """Whether it is a part of the broker, with settings of its own in ``auth``."""
        return not self.opens


AUTH_METHODS: Final[Mapping[str, MethodLine]] = {
    "certificate": MethodLine(),
    "password": MethodLine(),
    "jwt": MethodLine(
        opens="perdure.auth_methods.jwt:open_method", extra="jwt", settings=JwtConfig
    ),
    "http": MethodLine(
        opens="perdure.auth_methods.http:open_method", extra="http-auth", settings=HttpAuthConfig
    ),
    "postgres": MethodLine(
        opens="perdure.auth_methods.postgres:open_method",
        extra="postgres",
        settings=PostgresAuthConfig,
    ),
    "redis": MethodLine(
        opens="perdure.auth_methods.redis:open_method", extra="redis", settings=RedisAuthConfig
    ),
    "tokens": MethodLine(
        opens="perdure.auth_methods.tokens:open_method", settings=TokensAuthConfig
    ),
    "ldap": MethodLine(
        opens="perdure.auth_methods.ldap:open_method", extra="ldap", settings=LdapAuthConfig
    ),
    "ocsp": MethodLine(
        opens="perdure.auth_methods.ocsp:open_method", extra="ocsp", settings=OcspAuthConfig
    ),
    "anonymous": MethodLine(),
}
"""By the name that ``auth.chain`` takes."""
