"""What no single setting can tell: relations between settings.

Runs on a configuration whose types and bounds are right already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from os.path import normpath
from typing import Final

from perdure.config.bind import Problem
from perdure.config.cluster_rules import cluster_problems
from perdure.config.document import Origin
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema import AUTH_METHODS, AuthConfig, Config, Listener, StorageConfig
from perdure.config.units import is_loopback, parse_address

_ANY: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - to compare with
"""Hosts that stand for every address."""

_TLS_ONLY = (
    "certificate",
    "private_key",
    "client_ca",
    "client_crl",
    "require_client_certificate",
    "username_from_certificate",
)


_WEB_ORIGIN: Final = re.compile(
    r"(?!http://[^/]*:80$|https://[^/]*:443$)[a-z][a-z0-9+.-]*://[^\s/?#A-Z@]+"
)
"""As browsers write it (RFC 6454 section 6.1); anything else would never be equal."""


def enabled_listeners(config: Config) -> Iterator[tuple[str, str, Listener]]:
    """Kind, setting path and settings of each listener that is to be opened."""
    for kind in LISTENER_KINDS:
        for index, listener in enumerate(getattr(config.listeners, kind)):
            if listener.enabled:
                yield kind, f"listeners.{kind}.{index}", listener


def validate(config: Config, origins: Mapping[str, Origin]) -> list[Problem]:
    """Every relation that does not hold.

    Args:
        config: the configuration, listener addresses complete.
        origins: where values were given, for messages, and to tell a value from a default.
    """
    found: list[Problem] = []
    bound: dict[str, str] = {}
    for kind, path, listener in enabled_listeners(config):
        found += _listener(kind, path, listener, origins)
        found += _chain(f"{path}.auth_chain", listener.auth_chain)
        found += _access(path, listener, config.auth)
        found += _twice(f"{path}.bind", listener.bind, bound)
    found += _chain("auth.chain", config.auth.chain)
    found += _unused(config, origins)
    if not bound:
        found.append(Problem("listeners", "no listener is enabled: nobody could connect"))
    for name in ("metrics", "http"):
        bind: str = getattr(config, name).bind
        if ":" in bind.rpartition("]")[2]:
            found += _twice(f"{name}.bind", bind, bound)
    found += _storage(config.storage)
    url = config.alarms.webhook_url
    if url and not url.startswith(("http://", "https://")):
        found.append(Problem("alarms.webhook_url", f"{url} is no http:// or https:// URL"))
    found += cluster_problems(config, origins)
    thresholds = config.storage.rocksdb.learn_thresholds
    if not thresholds or min(thresholds) < 1:
        found.append(
            Problem("storage.rocksdb.learn_thresholds", "needs one number or more, each at least 1")
        )
    if config.metrics.bind and ":" not in config.metrics.bind.rpartition("]")[2]:
        found.append(Problem("metrics.bind", "has no port"))
    found += _http(config)
    return [_placed(problem, origins) for problem in found]


def _twice(path: str, bind: str, bound: dict[str, str]) -> Iterator[Problem]:
    """An address that an earlier listener has, by itself or because one of them is every address.

    Args:
        path: the setting.
        bind: its value.
        bound: settings by the addresses before it; this one is added.
    """
    try:
        address = parse_address(bind)
    except ValueError:
        return  # told where it is bound
    for other, owner in bound.items():
        taken = parse_address(other)
        if address.port == taken.port and address.port:
            if address.host == taken.host:
                yield Problem(path, f"{bind} is the address of {owner} too")
            elif _ANY & {address.host, taken.host}:
                yield Problem(path, f"{bind} and {other}, the address of {owner}, share a port")
    bound[bind] = path.removesuffix(".bind")


def _storage(storage: StorageConfig) -> Iterator[Problem]:
    if not storage.path.strip():
        yield Problem("storage.path", "is empty", hint="name a directory of the broker's own")
    elif normpath(storage.path).strip("/") == "":
        yield Problem(
            "storage.path",
            f"{storage.path} is the root of the file system",
            hint="name a directory of the broker's own, such as /var/lib/perdure",
        )


def _placed(problem: Problem, origins: Mapping[str, Origin]) -> Problem:
    origin = origins.get(problem.path)
    if origin is None:
        return problem
    return Problem(problem.path, problem.message, origin.where, problem.hint)


def _listener(
    kind: str, path: str, listener: Listener, origins: Mapping[str, Origin]
) -> Iterator[Problem]:
    traits = LISTENER_KINDS[kind]
    if traits.is_tls:
        for name in ("certificate", "private_key"):
            if not getattr(listener, name):
                yield Problem(f"{path}.{name}", f"a {kind} listener needs it")
        for name in ("client_crl", "require_client_certificate", "username_from_certificate"):
            if getattr(listener, name) and not listener.client_ca:
                yield Problem(f"{path}.{name}", "needs client_ca")
    else:
        for name in _TLS_ONLY:
            if f"{path}.{name}" in origins:
                yield Problem(f"{path}.{name}", f"a {kind} listener does not have it")
    if traits.is_web:
        if not listener.path.startswith("/"):
            yield Problem(f"{path}.path", "must begin with /")
        for origin in listener.origins:
            if origin != "null" and not _WEB_ORIGIN.fullmatch(origin):
                yield Problem(
                    f"{path}.origins",
                    f"{origin!r} is no web origin",
                    hint="such as https://app.example or http://localhost:8000: in small letters, "
                    "without a path, the port only if it is not the scheme's own",
                )
    else:
        for name in ("path", "origins"):
            if f"{path}.{name}" in origins:
                yield Problem(f"{path}.{name}", f"a {kind} listener does not have it")


def _http(config: Config) -> Iterator[Problem]:
    if bool(config.http.certificate) != bool(config.http.private_key):
        missing = "private_key" if config.http.certificate else "certificate"
        yield Problem(f"http.{missing}", "certificate and private_key go together")
    if config.http.login_tokens and not config.auth.token_store.store:
        yield Problem("http.login_tokens", "needs the store that auth.tokens.store names")
    if config.http.bind and not config.storage.traits.is_kept:
        yield Problem(
            "http.bind",
            "the HTTP interface reads the log beside the broker, and storage.backend "
            f"{config.storage.backend} keeps it in the broker's memory",
        )


def _chain(path: str, chain: tuple[str, ...]) -> Iterator[Problem]:
    """Names that there are, each once, and none after who lets everybody in."""
    for name in chain:
        if name not in AUTH_METHODS:
            close = get_close_matches(name, AUTH_METHODS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(AUTH_METHODS)}"
            yield Problem(path, f"{name!r} is no way to authenticate", hint=hint)
    if len(set(chain)) != len(chain):
        yield Problem(path, "names a method twice")
    if "anonymous" in chain[:-1]:
        yield Problem(path, "anonymous comes last: nobody is asked after it")


def _unused(config: Config, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """A method that has settings and that no chain names: someone takes it to be in force."""
    used = set(config.auth.chain)
    for _, _, listener in enabled_listeners(config):
        used.update(listener.auth_chain)
    for name, line in AUTH_METHODS.items():
        if name in used:
            continue
        if line.is_built_in:
            path = "auth.password_file" if name == "password" and config.auth.password_file else ""
        else:
            path = next((path for path in origins if path.startswith(f"auth.{name}.")), "")
        if path:
            yield Problem(
                path,
                f"is set, but no chain names {name}",
                hint=f"auth.chain: [certificate, password, {name}, anonymous]",
            )


def _access(path: str, listener: Listener, auth: AuthConfig) -> Iterator[Problem]:
    """Refuse a listener that is open to strangers by accident, or to nobody at all."""
    chain = listener.auth_chain or auth.chain
    if any(name in AUTH_METHODS and not AUTH_METHODS[name].is_built_in for name in chain):
        return
    if auth.password_file and "password" in chain:
        return
    if listener.username_from_certificate and "certificate" in chain:
        return
    is_open = "anonymous" in chain
    if is_open and auth.allow_anonymous == "always":
        return
    if not is_open:
        yield Problem(
            f"{path}.auth_chain" if listener.auth_chain else "auth.chain",
            "nobody could connect: it names no way to authenticate that is configured",
            hint="add one, and what it needs: auth.password_file for password",
        )
    elif auth.allow_anonymous == "never":
        yield Problem(
            f"{path}.bind",
            "nobody could connect: auth.allow_anonymous is never and auth.password_file is empty",
            hint="write users with `perdure passwd FILE USER` and set auth.password_file",
        )
    elif not is_loopback(parse_address(listener.bind).host):
        yield Problem(
            f"{path}.bind",
            f"{listener.bind} is open to other machines and no authentication is configured",
            hint="set auth.password_file, or auth.allow_anonymous=always to let everyone in",
        )
