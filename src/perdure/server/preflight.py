"""What must be there before a broker starts: files, directory, packages, addresses.

``perdure serve`` runs this before it opens anything, and ``perdure config check`` shows all of it:
what the one refuses, the other finds. It changes nothing but to bind a port, and to make an empty
directory, for a moment.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import pwd
import secrets
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.auth_methods.opening import Surroundings, open_method
from perdure.backup.places import S3_SCHEME, open_place
from perdure.broker.auth.bans import BanList
from perdure.broker.auth.control import AccessFiles, read_files
from perdure.broker.auth.guard import LoginGuard
from perdure.clock import SystemClock
from perdure.config import plugged
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema import Config, Listener
from perdure.config.validate import enabled_listeners
from perdure.errors import AddressUnavailable, ConfigError, MqttError, PerdureError
from perdure.forwarders.applications import Applications
from perdure.forwarders.check import check_forwarder
from perdure.limits import UTF8_STRING_BYTES_MAX
from perdure.net.certificate import validity
from perdure.net.settings import TlsSettings, split_bind
from perdure.net.sockets import open_listening
from perdure.net.tls import server_context
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.server.auth_part import names_in_use
from perdure.server.bans import read_bans
from perdure.server.http_part import HTTP_PORT, TOKEN_FILE
from perdure.server.metrics_part import METRICS_PORT, TOKEN_SETTING
from perdure.server.past_start import reads_archive
from perdure.server.permissions import open_to_others
from perdure.server.stores import make_driver
from perdure.topic.names import SHARE_PREFIX, validate_topic_filter
from perdure.web.forwarded import networks_of
from perdure.web.tokens import read_tokens

Severity: TypeAlias = Literal["problem", "warning"]

EXPIRY_NOTICE: Final = timedelta(days=14)
"""How long before its end a certificate is warned of."""

ROOM_BYTES_MIN: Final = 256 * 1024 * 1024
"""Less free space is warned of: a start may need as much as the write-ahead log has."""


@final
class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it should be.

    Attributes:
        path: the setting.
        message: what is wrong.
        hint: what to do, or empty.
        severity: ``problem``: the broker does not start; ``warning``: it does, or may later.
    """

    path: str
    message: str
    hint: str = ""
    severity: Severity = "problem"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@final
class Preflight(msgspec.Struct, frozen=True):
    """What was found, and the files that were read for it.

    Attributes:
        findings: problems and warnings, in the order of the configuration.
        files: users and rules; None = they cannot be read.
        bans: None = they cannot be read.
    """

    findings: tuple[Finding, ...]
    files: AccessFiles | None
    bans: BanList | None

    @property
    def problems(self) -> list[Finding]:
        """What keeps the broker from starting."""
        return [finding for finding in self.findings if finding.severity == "problem"]

    @property
    def warnings(self) -> list[Finding]:
        """What does not."""
        return [finding for finding in self.findings if finding.severity == "warning"]

    def ready(self) -> tuple[AccessFiles, BanList]:
        """The files of a broker that may start.

        Raises:
            ConfigError: it may not; the first problem, and how many more there are.
        """
        problems = self.problems
        if problems:
            first = problems[0]
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            hint = first.hint or ("perdure config check shows all of them" if more else "")
            raise ConfigError(f"{first}{more}", path=first.path, hint=hint)
        assert self.files is not None
        assert self.bans is not None
        return self.files, self.bans


def look(config: Config, *, ports: bool) -> Preflight:
    """Look at all that a start needs; may take a while, so use a thread.

    Args:
        config: checked by itself.
        ports: also bind each address for a moment. A start does without: it binds them anyway.
    """
    findings: list[Finding] = []
    users = rules = bans = None
    with _told(findings, "storage.path"):
        findings += _directory(config)
    findings += _kept_for(config)
    with _told(findings, "replay.archive"):
        findings += _replays(config)
    findings += _recorded(config)
    with _told(findings, "backup.to"):
        _backups(config)
    with _told(findings, "storage.backend"):
        _make_driver(config)
    with _told(findings, "registry.url"):
        _registry(config)
    with _told(findings, "auth.password_file"):
        users = read_files(msgspec.structs.replace(config.auth, acl_file=""))
    for name in names_in_use(config):
        with _told(findings, f"auth.{name}"):
            _make_method(name, config)
    with _told(findings, "auth.acl_file"):
        rules = read_files(msgspec.structs.replace(config.auth, password_file=""))
    with _told(findings, "auth.ban_file"):
        bans = read_bans(config)
    for name, forwarder in config.forwarders.items():
        with _told(findings, f"forwarders.{name}"):
            check_forwarder(name, forwarder)
    with _told(findings, "applications.declared"):
        for name, forwarder in Applications(config.applications).configured().items():
            check_forwarder(name, forwarder)
    for kind, path, listener in enabled_listeners(config):
        with _told(findings, path):
            findings += _tls(kind, path, listener)
        if ports:
            with _told(findings, path):
                host, port = split_bind(
                    listener.bind, LISTENER_KINDS[kind].port, path=f"{path}.bind"
                )
                _try_port(host, port, path=path)
    for path, bind, default in (
        ("metrics", config.metrics.bind, METRICS_PORT),
        ("http", config.http.bind, HTTP_PORT),
    ):
        if bind and ports:
            with _told(findings, f"{path}.bind"):
                host, port = split_bind(bind, default, path=f"{path}.bind")
                _try_port(host, port, path=path)
    if config.http.bind:
        findings += _http(config)
    if config.metrics.bind and config.metrics.token_file:
        with _told(findings, TOKEN_SETTING):
            read_tokens(Path(config.metrics.token_file), setting=TOKEN_SETTING)
    findings += [
        Finding(name, f"others on this machine may use {what}", remedy, "warning")
        for name, what, remedy in open_to_others(config)
    ]
    files = None
    if users is not None and rules is not None:
        files = AccessFiles(users.credentials, rules.rules)
    return Preflight(tuple(findings), files, bans)


@contextlib.contextmanager
def _told(findings: list[Finding], path: str) -> Iterator[None]:
    """Turn what is raised into a finding."""
    try:
        yield
    except AddressUnavailable as error:
        findings.append(Finding(error.path or path, error.message, error.hint, "warning"))
    except PerdureError as error:
        findings.append(Finding(getattr(error, "path", "") or path, error.message, error.hint))
    except OSError as error:  # a name that is too long, a circle of links
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        findings.append(Finding(path, what, "name another"))


def _directory(config: Config) -> Iterator[Finding]:
    """The data directory, or where it would be made, takes files."""
    if not config.storage.traits.is_kept:
        return
    given = Path(config.storage.path)
    name = "storage.path"
    if given.exists() and not given.is_dir():
        yield Finding(name, f"{given} is a file, not a directory", "name a directory")
        return
    found = _nearest(given)
    if not found.is_dir():
        what = "a file, not a directory" if found.exists() else "a link to nothing"
        yield Finding(name, f"{found} is {what}", "name another directory")
        return
    if not os.access(found, os.R_OK | os.W_OK | os.X_OK):
        what = f"{given} cannot be written" if found == given else f"{given} cannot be made: "
        if found != given:
            what += f"{found} cannot be written"
        yield Finding(name, what, _writable_hint(found))
        return
    refusal = _refusal(found)
    if refusal:
        verb = "written" if found == given else "made"
        yield Finding(
            name, f"{given} cannot be {verb}: {found}: {refusal}", "name another directory"
        )
        return
    space = os.statvfs(found)
    free = space.f_bavail * space.f_frsize
    if free < ROOM_BYTES_MIN:
        text = f"{found} is on a file system with {free // 1024**2} MiB free ({_mount(found)})"
        yield Finding(name, text, "make room: see docs/howto/data-directory.md", "warning")


def _nearest(path: Path) -> Path:
    """What there is of a path: itself, or the nearest above it; also a link that leads nowhere."""
    return next(step for step in (path, *path.absolute().parents) if os.path.lexists(step))


def _refusal(directory: Path) -> str:
    """Why nothing can be made in a directory that allows it (/proc does); empty = it can.

    That it is full is said with what it lacks.
    """
    try:
        Path(tempfile.mkdtemp(prefix=".perdure-", dir=directory)).rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return error.strerror or str(error)
    return ""


def _recorded(config: Config) -> Iterator[Finding]:
    """Filters that match what the operator meant: one that matches nothing records nothing."""
    for name in ("record", "record_qos0"):
        filters: tuple[str, ...] = getattr(config.storage, name)
        for each in filters:
            path = f"storage.{name}"
            if each.startswith(SHARE_PREFIX):
                yield Finding(path, f"{each!r}: what is recorded has no $share")
                continue
            try:
                validate_topic_filter(each, levels_max=UTF8_STRING_BYTES_MAX)
            except MqttError as error:
                yield Finding(path, f"{each!r}: {error.message}")


def _backups(config: Config) -> None:
    """Whether the broker can make the backups that it shall.

    Raises:
        ConfigError: it cannot.
    """
    if not config.backup.every:
        return
    if not config.storage.traits.is_directory:
        raise ConfigError(
            f"backup.every is set, and storage.backend is {config.storage.backend}",
            path="backup.every",
            hint="a backup copies a directory; back up the server instead (docs/howto/backup.md)",
        )
    if not config.backup.to:
        raise ConfigError(
            "backup.every is set, and no place", path="backup.to", hint="a directory, or s3://"
        )
    if not config.backup.to.startswith(S3_SCHEME):
        open_place(config.backup.to, setting="backup.to", data=Path(config.storage.path))
        found = _nearest(Path(config.backup.to.removeprefix("file://")))
        if not found.is_dir():
            raise ConfigError(
                f"{found} is not a directory", path="backup.to", hint="name another directory"
            )


def _kept_for(config: Config) -> Iterator[Finding]:
    """A pipeline that has died does not fill the disk."""
    retention = config.retention
    if retention.keep_for and not retention.bytes and not retention.disk_bytes_max:
        names = ", ".join(retention.keep_for)
        yield Finding(
            "retention.keep_for",
            f"the log waits for {names} with nothing to bound it: if that stops, the disk fills up",
            "set retention.disk_bytes_max with a disk_policy, or retention.bytes",
            "warning",
        )


def _replays(config: Config) -> Iterator[Finding]:
    """What the log drops before it is archived is in no replay."""
    if reads_archive(config) and config.pipeline.archive.name not in config.retention.keep_for:
        yield Finding(
            "retention.keep_for",
            "replays go on in the archive, and the log does not wait for it: what is dropped "
            "before it is archived is in no replay",
            f'retention.keep_for: ["{config.pipeline.archive.name}"]',
            "warning",
        )


def _writable_hint(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"the file system {_mount(path)} is mounted read-only"
    user = _user(os.geteuid())
    return f"it belongs to {_user(path.stat().st_uid)}; make it {user}'s, who runs the broker"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _mount(path: Path) -> Path:
    """Where the file system of a path begins."""
    resolved = path.resolve()
    return next(step for step in (resolved, *resolved.parents) if os.path.ismount(step))


def _make_driver(config: Config) -> None:
    """The driver of a server is installed, and its URL is one."""
    if config.storage.traits.is_server:
        make_driver(config.storage, "preflight")


def _registry(config: Config) -> None:
    """The driver of Redis is installed, and the URL is one."""
    if config.registry.url:
        parse_url = plugged.load(
            "perdure.storage.redis.url:parse_url",
            setting="registry.url",
            what="the registry",
            extra="redis",
        )
        parse_url(config.registry.url)


def _make_method(name: str, config: Config) -> None:
    """A way to authenticate has what it needs: packages, files, URLs that are some."""
    around = Surroundings(
        clock=SystemClock(),
        log=get_logger("preflight"),
        metrics=Metrics(),
        random_bytes=secrets.token_bytes,
        guard=LoginGuard(config.auth),
    )
    open_method(name, config.auth, around)


def _tls(kind: str, path: str, listener: Listener) -> Iterator[Finding]:
    if not LISTENER_KINDS[kind].is_tls:
        return
    server_context(
        TlsSettings(
            listener.certificate,
            listener.private_key,
            listener.client_ca,
            require_client_certificate=listener.require_client_certificate,
            path=path,
            client_crl=listener.client_crl,
        )
    )
    yield from _certificate(f"{path}.certificate", listener.certificate)


def _http(config: Config) -> list[Finding]:
    http = config.http
    findings: list[Finding] = []
    for module in ("starlette", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            text = f"the HTTP interface needs the package {module}"
            findings.append(Finding("http.bind", text, "pip install 'perdure[http]'"))
    with _told(findings, "http.proxies"):
        networks_of(http.proxies)
    if http.certificate:
        with _told(findings, "http"):
            server_context(TlsSettings(http.certificate, http.private_key, path="http"))
            findings += _certificate("http.certificate", http.certificate)
    tokens = Path(http.token_file or Path(config.storage.path) / TOKEN_FILE)
    with _told(findings, "http.token_file"):
        if http.token_file or tokens.exists():
            read_tokens(tokens)
    return findings


def _certificate(path: str, file: str) -> Iterator[Finding]:
    """A certificate that has ended is warned of: some clients do not look."""
    try:
        since, until = validity(Path(file).read_text(encoding="ascii", errors="replace"))
    except (OSError, ValueError):
        return  # OpenSSL has taken it
    now = datetime.now(UTC)
    hint = "put a new one there; SIGHUP takes it without a restart"
    if until <= now:
        yield Finding(path, f"{file} has expired on {until:%Y-%m-%d %H:%M} UTC", hint, "warning")
    elif until <= now + EXPIRY_NOTICE:
        yield Finding(path, f"{file} expires on {until:%Y-%m-%d %H:%M} UTC", hint, "warning")
    elif since > now:
        text = f"{file} is not valid before {since:%Y-%m-%d %H:%M} UTC"
        yield Finding(path, text, "is the clock of this machine right?", "warning")


def _try_port(host: str, port: int, *, path: str) -> None:
    for opened in open_listening(host, port, backlog=1, path=path):
        opened.close()
