"""Where a Redis is, out of a URL.

::

    redis://[user][:password]@host[:port][/database]         one server
    rediss://...                                             over TLS
    redis+cluster://host[:port][,host[:port]...]             a cluster: any of its nodes
    rediss+cluster://...
    ?ca=FILE  certificates to trust besides the system's
    &certificate=FILE&key=FILE   our own certificate
    &verify=no   trust any certificate: for tests on a closed network only
"""

from __future__ import annotations

import re
import ssl
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from perdure.errors import ConfigError

DEFAULT_PORT: Final = 6379
_SCHEMES: Final = ("redis", "rediss", "redis+cluster", "rediss+cluster")
_PARTS: Final = re.compile(r"([^:/?#]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
"""Scheme, login and hosts, path, query (RFC 3986 appendix B). Not by ``urlsplit``: of several hosts
it takes an IPv6 address in the first place only, since releases of 2024."""
_OPTIONS: Final = frozenset(("ca", "certificate", "key", "verify"))


class TlsOptions(msgspec.Struct, frozen=True):
    """How to trust the server, and what to show it; file names, empty = none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """A context for the connections.

        Raises:
            ConfigError: a file cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the certificates for Redis cannot be used: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class RedisAddress(msgspec.Struct, frozen=True):
    """Where a Redis is and how to log in.

    Attributes:
        nodes: (host, port) of the server, or of any nodes of the cluster.
        username, password: empty = none.
        database: number; 0 in a cluster.
        cluster: whether the nodes are a cluster.
        tls: None = no TLS.
    """

    nodes: tuple[tuple[str, int], ...]
    username: str = ""
    password: str = ""
    database: int = 0
    cluster: bool = False
    tls: TlsOptions | None = None

    def __repr__(self) -> str:
        return f"RedisAddress({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL without the password, for messages and logs."""
        scheme = ("redis" if self.tls is None else "rediss") + ("+cluster" if self.cluster else "")
        secret = f"{self.username}:***@" if self.password else ""
        hosts = ",".join(show_node(host, port) for host, port in self.nodes)
        return f"{scheme}://{secret}{hosts}" + ("" if self.cluster else f"/{self.database}")


def show_node(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_url(url: str) -> RedisAddress:
    """The address in a URL.

    Raises:
        ConfigError: it is no such URL; the message never holds the password.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        raise _wrong("it is no URL")
    scheme, netloc, path, query = parts.groups()
    if scheme not in _SCHEMES:
        raise _wrong(f"the scheme is one of {', '.join(_SCHEMES)}")
    cluster = scheme.endswith("+cluster")
    login, _, hosts = netloc.rpartition("@")
    username, _, password = login.partition(":")
    nodes = tuple(_node(node) for node in hosts.split(","))
    if len(nodes) > 1 and not cluster:
        raise _wrong("only a cluster has several hosts")
    database = path.strip("/")
    if database and (not database.isdecimal() or (cluster and database != "0")):
        raise _wrong("the path is a database number (a cluster has database 0 only)")
    return RedisAddress(
        nodes=nodes,
        username=unquote(username),
        password=unquote(password),
        database=int(database or 0),
        cluster=cluster,
        tls=_tls(scheme, query or ""),
    )


def _node(text: str) -> tuple[str, int]:
    try:
        if "[" in text[1:]:
            raise ValueError("a bracket in a name")
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _wrong(
            "a host is a name or an address, IPv6 in brackets, a port 1 to 65535"
        ) from error
    if not host:
        raise _wrong("a host is missing")
    return host, port or DEFAULT_PORT


def _tls(scheme: str, query: str) -> TlsOptions | None:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise _wrong(f"no option is called {unknown[0]!r}")
    if not scheme.startswith("rediss"):
        if options:
            raise _wrong("its options are for rediss:// only")
        return None
    verify = options.get("verify", "yes")
    if verify not in ("yes", "no"):
        raise _wrong("verify is yes or no")
    return TlsOptions(
        ca=options.get("ca", ""),
        certificate=options.get("certificate", ""),
        key=options.get("key", ""),
        verify=verify == "yes",
    )


def _wrong(reason: str) -> ConfigError:
    return ConfigError(
        f"the Redis URL cannot be used: {reason}", hint="redis://user:password@host:6379/0"
    )
