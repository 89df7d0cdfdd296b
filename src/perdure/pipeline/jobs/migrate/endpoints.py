"""What a URL means: which store, with which layout, shown without its password."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from perdure.config.backends import BACKENDS
from perdure.errors import ConfigError

Kind: TypeAlias = Literal["directory", "postgres", "redis"]
Layout: TypeAlias = Literal["tbmq", "compact", "broker"]
"""``broker``: the whole state of a broker that has its storage in the server."""

_SECRET: Final = re.compile(r"([?&]\w*password=)[^&]*")
_KINDS: Final[tuple[Kind, ...]] = ("postgres", "redis")
_SCHEMES: Final[dict[str, Kind]] = {
    scheme: kind for kind in _KINDS for scheme in BACKENDS[kind].schemes
}


class Endpoint(msgspec.Struct, frozen=True):
    """One side of a migration.

    Attributes:
        kind: which store.
        url: its URL, or the path of a data directory.
        layout: of Redis keys, or ``broker``.
        prefix: of Redis keys.
    """

    kind: Kind
    url: str
    layout: Layout = "tbmq"
    prefix: str = ""

    @property
    def is_database(self) -> bool:
        """Whether it holds sessions, not only queues, and one process writes it."""
        return self.kind == "directory" or self.layout == "broker"

    @property
    def shown(self) -> str:
        """For people and ledgers."""
        shown = redacted(self.url)
        if self.kind == "directory" or (self.kind == "postgres" and self.layout != "broker"):
            return shown
        return f"{shown} ({self.layout}{', prefix ' + self.prefix if self.prefix else ''})"


def parse_endpoint(text: str, *, layout: Layout, prefix: str = "") -> Endpoint:
    """The endpoint in what a user has given.

    Raises:
        ConfigError: there is no such store.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme == "file":
        path = rest if separator else text
        if not path:
            raise ConfigError("a data directory needs a path")
        return Endpoint("directory", path)
    kind = _SCHEMES.get(scheme)
    if kind is None:
        raise ConfigError(
            f"{scheme}:// is no store that can be migrated",
            hint="redis://, rediss://, redis+cluster://, postgresql:// or a data directory",
        )
    try:
        # One by one: of several nodes ``urlsplit`` takes an IPv6 address in the first place only.
        for node in rest.partition("/")[0].rpartition("@")[2].split(","):
            parts = urlsplit(f"//{node}")
            if not parts.hostname:
                raise ConfigError(f"{redacted(text)} names no host")
            _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{redacted(text)} is no URL: {error}") from error
    return Endpoint(kind, text, layout, prefix if kind == "redis" else "")


def redacted(url: str) -> str:
    """A URL without its password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    authority, slash, path = rest.partition("/")
    account, at, host = authority.rpartition("@")
    if not at:
        return _SECRET.sub(r"\1***", url)
    user, colon, _ = account.partition(":")
    path = _SECRET.sub(r"\1***", path)
    return f"{scheme}://{user}{':***' if colon else ''}@{host}{slash}{path}"
