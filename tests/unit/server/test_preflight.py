"""What must be there before a broker starts: all of it is found, and nothing else."""

from __future__ import annotations

import datetime as dt
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.bench.ports import free_port
from perdure.config.schema import (
    AuthConfig,
    BackupConfig,
    Config,
    HttpConfig,
    KafkaForwarderConfig,
    Listener,
    ListenersConfig,
    MetricsConfig,
    PipelineConfig,
    PostgresConfig,
    RedisConfig,
    RegistryConfig,
    ReplayConfig,
    RetentionConfig,
    StorageConfig,
    TablesConfig,
)
from perdure.config.schema.applications import ApplicationsConfig
from perdure.config.schema.forwarders import (
    PostgresForwarderConfig,
    RedisForwarderConfig,
    WebhookForwarderConfig,
)
from perdure.errors import ConfigError
from perdure.server import past_start, preflight
from perdure.server.preflight import look
from tests.unit.net.helpers import issue
from tests.unit.net.test_certificate import pem

ANY_PORT = ListenersConfig(tcp=(Listener(bind="127.0.0.1:0"),))


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Config]:
    """A configuration that is in order but for what is given."""

    def make(**sections: Any) -> Config:
        given: dict[str, Any] = {
            "storage": StorageConfig(path=str(tmp_path / "data")),
            "listeners": ANY_PORT,
        }
        return Config(**(given | sections))

    return make


@pytest.fixture
def secure(tmp_path: Path) -> Callable[..., ListenersConfig]:
    """A TLS listener whose files are in order but for what is given."""
    issue(tmp_path, "server", "localhost")
    (tmp_path / "server.key").chmod(0o600)

    def make(**changes: str) -> ListenersConfig:
        files = {
            "certificate": str(tmp_path / "server.pem"),
            "private_key": str(tmp_path / "server.key"),
        }
        return ListenersConfig(tcp=(), tls=(Listener(bind="127.0.0.1:0", **(files | changes)),))

    return make


def told(config: Config) -> tuple[list[str], list[str]]:
    """Problems and warnings."""
    found = look(config, ports=True)
    return [str(each) for each in found.problems], [str(each) for each in found.warnings]


def test_nothing_to_find(made: Callable[..., Config], secure: Callable[..., Any]) -> None:
    for config in (made(), made(listeners=secure())):
        assert told(config) == ([], [])
        files, bans = look(config, ports=False).ready()
        assert files.credentials is None
        assert not bans.in_force(0)
    assert not Path(made().storage.path).exists()  # it changes nothing


def test_all_of_it_is_told_at_once(made: Callable[..., Config], tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    config = made(
        storage=StorageConfig(path=str(tmp_path / "data"), backend="rocksdb"),
        auth=AuthConfig(password_file=gone, acl_file=gone, ban_file=str(tmp_path)),
        listeners=ListenersConfig(
            tcp=(Listener(bind="no-such-host.invalid:0"),),
            tls=(Listener(bind="127.0.0.1:0", certificate=gone, private_key=gone),),
        ),
        http=HttpConfig(bind="127.0.0.1:0", certificate=gone, private_key=gone, token_file=gone),
    )
    problems, warnings = told(config)
    assert [problem.partition(":")[0] for problem in problems] == [
        "auth.password_file",
        "auth.acl_file",
        "auth.ban_file",
        "listeners.tcp.0.bind",
        "listeners.tls.0.certificate",
        "http.certificate",
        "http.token_file",
    ]
    assert warnings == []
    with pytest.raises(ConfigError, match=r"auth.password_file: .*\(and 5 more\)"):
        look(config, ports=False).ready()


def test_a_name_that_no_file_can_have(made: Callable[..., Config], tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    problems, _ = told(made(storage=StorageConfig(path=str(path))))
    assert problems[0] == f"storage.path: {path}: File name too long"
    assert all(problem.endswith("File name too long") for problem in problems)


def test_a_url_of_no_postgres(made: Callable[..., Config]) -> None:
    pytest.importorskip("asyncpg")
    storage = StorageConfig(backend="postgres", postgres=PostgresConfig(url="foo"))
    problems, _ = told(made(storage=storage))
    assert problems == ["storage.postgres.url: is no URL of PostgreSQL"]


@pytest.mark.parametrize("url", ["x", "http://127.0.0.1", "redis://127.0.0.1:x"])
def test_a_registry_that_is_at_no_url(made: Callable[..., Config], url: str) -> None:
    pytest.importorskip("hiredis")
    problems, _ = told(made(registry=RegistryConfig(url=url)))
    assert len(problems) == 1
    assert problems[0].startswith("registry.url: the Redis URL cannot be used: ")


def test_a_key_that_belongs_to_another_certificate(
    made: Callable[..., Config], secure: Callable[..., Any], tmp_path: Path
) -> None:
    issue(tmp_path, "other", "localhost")
    (tmp_path / "other.key").chmod(0o600)
    problems, _ = told(made(listeners=secure(private_key=str(tmp_path / "other.key"))))
    assert len(problems) == 1
    assert problems[0].startswith("listeners.tls.0.private_key: the private key in")
    assert "does not belong to" in problems[0]


@pytest.mark.parametrize(
    ("since_days", "until_days", "text"),
    [(-9, -1, "has expired on"), (-9, 3, "expires on"), (1, 90, "is not valid before")],
)
def test_the_time_of_a_certificate(
    made: Callable[..., Config], tmp_path: Path, since_days: int, until_days: int, text: str
) -> None:
    now = dt.datetime.now(dt.UTC)
    file = tmp_path / "c.pem"
    file.write_text(pem(now + dt.timedelta(days=since_days), now + dt.timedelta(days=until_days)))
    (warning,) = preflight._certificate("path", str(file))
    assert text in warning.message
    assert warning.severity == "warning"
    assert warning.hint


def test_what_others_may_use_is_told_once(
    made: Callable[..., Config], secure: Callable[..., Any], tmp_path: Path
) -> None:
    config = made(listeners=secure())
    data, key = Path(config.storage.path), tmp_path / "server.key"
    data.mkdir(mode=0o700)
    assert told(config) == ([], [])
    data.chmod(0o755)
    key.chmod(0o604)
    assert told(config) == (
        [],
        [
            f"storage.path: others on this machine may use {data} (0755)",
            f"listeners.tls.0.private_key: others on this machine may use {key} (0604)",
        ],
    )


@pytest.mark.parametrize("text", [None, "", "short"])
def test_the_tokens_of_the_metrics(
    made: Callable[..., Config], tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
        file.chmod(0o600)
    metrics = MetricsConfig(bind="127.0.0.1:0", token_file=str(file))
    problems, warnings = told(made(metrics=metrics))
    assert warnings == []
    assert [problem.partition(":")[0] for problem in problems] == ["metrics.token_file"]
    file.write_text("x" * 32)
    file.chmod(0o600)
    assert told(made(metrics=metrics)) == ([], [])


def test_a_port_that_is_taken_may_be_free_later(made: Callable[..., Config]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        listeners = ListenersConfig(tcp=(Listener(bind=bind),))
        problems, warnings = told(
            made(listeners=listeners, metrics=MetricsConfig(bind=bind), http=HttpConfig(bind=bind))
        )
        assert problems == []
        assert [warning.partition(":")[0] for warning in warnings] == [
            "listeners.tcp.0.bind",
            "metrics.bind",
            "http.bind",
        ]
        assert look(made(listeners=listeners), ports=False).findings == ()
    assert told(made(listeners=listeners)) == ([], [])


def test_an_address_of_another_machine(made: Callable[..., Config]) -> None:
    bind = f"192.0.2.1:{free_port()}"
    problems, warnings = told(made(listeners=ListenersConfig(tcp=(Listener(bind=bind),))))
    assert problems == []
    assert warnings == [
        f"listeners.tcp.0.bind: cannot listen on {bind}: Cannot assign requested address"
    ]


@pytest.mark.parametrize("below", ["", "data", "a/b"])
def test_a_file_where_the_directory_should_be(
    made: Callable[..., Config], tmp_path: Path, below: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    problems, _ = told(
        made(
            storage=StorageConfig(path=str(file / below)),
            auth=AuthConfig(ban_file=str(tmp_path / "bans")),
        )
    )
    assert problems == [f"storage.path: {file} is a file, not a directory"]


@pytest.mark.parametrize("below", ["", "data"])
def test_a_directory_that_takes_no_files(
    made: Callable[..., Config], tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so who asks is told what another user would be."""
    directory = tmp_path / "locked"
    directory.mkdir()

    def access(path: Path, mode: int) -> bool:
        return not (mode & os.W_OK and Path(path) == directory)

    monkeypatch.setattr(preflight.os, "access", access)
    (problem,) = look(made(storage=StorageConfig(path=str(directory / below))), ports=True).problems
    assert problem.path == "storage.path"
    assert f"{directory} cannot be written" in problem.message
    assert "it belongs to" in problem.hint


@pytest.mark.parametrize("below", ["", "data"])
def test_a_directory_of_the_system(
    made: Callable[..., Config], tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc and /sys say that root may write there, and take no directory."""
    mkdtemp = preflight.tempfile.mkdtemp

    def refused(*, prefix: str, dir: Path) -> str:  # noqa: A002
        if dir == tmp_path / "proc":
            raise FileNotFoundError(code, os.strerror(code))
        return mkdtemp(prefix=prefix, dir=dir)

    monkeypatch.setattr(preflight.tempfile, "mkdtemp", refused)
    directory = tmp_path / "proc"
    directory.mkdir()
    path = directory / below
    config = made(
        storage=StorageConfig(path=str(path)), auth=AuthConfig(ban_file=str(tmp_path / "bans"))
    )
    code = errno.EPERM
    problems, _ = told(config)
    verb = "made" if below else "written"
    assert problems == [
        f"storage.path: {path} cannot be {verb}: {directory}: Operation not permitted"
    ]
    code = errno.ENOSPC
    assert told(config)[0] == []
    monkeypatch.undo()
    assert told(config)[0] == []
    assert list(directory.iterdir()) == []


def test_a_directory_is_no_link_to_nothing(made: Callable[..., Config], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    for path in (link, link / "data"):
        problems, _ = told(made(storage=StorageConfig(path=str(path))))
        assert problems == [f"storage.path: {link} is a link to nothing"]


def test_backups_go_to_a_directory(made: Callable[..., Config], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    def problems(to: str) -> list[str]:
        return told(made(backup=BackupConfig(every=3600, to=to)))[0]

    for to in (str(file), f"file://{file}", str(file / "backups")):
        assert problems(to) == [f"backup.to: {file} is not a directory"]
    assert problems("ftp://x/y") == ["backup.to: ftp://x/y is no place for backups"]
    for to in (str(tmp_path), str(tmp_path / "a" / "b"), "s3://bucket/prefix"):
        assert problems(to) == []
    assert told(made(backup=BackupConfig(to=str(file))))[0] == []  # no backup is asked for


def test_little_room_is_told(
    made: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(preflight, "ROOM_BYTES_MIN", 1 << 62)
    problems, (warning,) = told(made())
    assert problems == []
    assert warning.startswith(f"storage.path: {tmp_path} is on a file system with ")
    memory = made(storage=msgspec.structs.replace(made().storage, backend="memory"))
    assert told(memory) == ([], [])


@pytest.mark.parametrize(
    ("retention", "is_told"),
    [
        ({"keep_for": ("archive", "lake")}, True),
        ({"keep_for": ("archive",), "disk_bytes_max": 2**34}, False),
        ({"keep_for": ("archive",), "bytes": 2**34}, False),
        ({}, False),
    ],
)
def test_a_log_that_waits_has_a_bound(
    made: Callable[..., Config], retention: dict[str, Any], *, is_told: bool
) -> None:
    found = look(made(retention=RetentionConfig(**retention)), ports=False)
    assert not found.problems
    told = [warning for warning in found.warnings if warning.path == "retention.keep_for"]
    assert bool(told) == is_told
    if is_told:
        assert "waits for archive, lake" in told[0].message
        assert "disk_bytes_max" in told[0].hint


def test_replays_go_on_in_an_archive_that_the_log_waits_for(
    made: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_start.importlib.util, "find_spec", lambda _: object())
    pipeline = PipelineConfig(tables=TablesConfig(place=str(tmp_path)))
    (warning,) = look(made(pipeline=pipeline), ports=False).warnings
    assert warning.path == "retention.keep_for"
    assert "before it is archived is in no replay" in warning.message
    kept = RetentionConfig(keep_for=("archive",), bytes=2**34)
    assert not look(made(pipeline=pipeline, retention=kept), ports=False).warnings
    problems, _ = told(made(replay=ReplayConfig(archive="on")))
    assert problems == [
        "replay.archive: replays are to go on in the archive, and no place of it is named"
    ]


def test_filters_of_what_is_recorded_are_filters(made: Callable[..., Config]) -> None:
    storage = made().storage
    wrong = msgspec.structs.replace(
        storage, record=("site/#", "a/#/b", "$share/g/a"), record_qos0=("b+", "", "+/b")
    )
    problems, _ = told(made(storage=wrong))
    assert problems == [
        "storage.record: 'a/#/b': # must be the last level of a topic filter",
        "storage.record: '$share/g/a': what is recorded has no $share",
        "storage.record_qos0: 'b+': a wildcard must be a whole level",
        "storage.record_qos0: '': a topic filter must not be empty",
    ]


def test_a_backend_that_is_not_installed(
    made: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(*_: object) -> None:
        raise ConfigError(
            "storage.backend redis needs the package hiredis",
            path="storage.backend",
            hint="pip install 'perdure[redis]'",
        )

    monkeypatch.setattr(preflight, "make_driver", missing)
    storage = StorageConfig(path=str(tmp_path), backend="redis", redis=RedisConfig())
    (problem,) = look(made(storage=storage), ports=False).problems
    assert problem.hint == "pip install 'perdure[redis]'"


def test_http_that_is_not_installed(
    made: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda _: None)
    problems = look(made(http=HttpConfig(bind="127.0.0.1:0")), ports=False).problems
    assert [problem.hint for problem in problems] == ["pip install 'perdure[http]'"] * 2


def test_forwarders_and_applications_that_cannot_be_are_found(made: Callable[..., Config]) -> None:
    config = made(
        forwarders={
            "good": WebhookForwarderConfig(url="http://127.0.0.1:1/"),
            "nowhere": KafkaForwarderConfig(topic="t"),
            "aside": RedisForwarderConfig(url="redis://127.0.0.1", filter=("a/#/b",)),
            "dead": PostgresForwarderConfig(url="postgresql://a/b", dead_letter="$dead/#"),
        },
        applications=ApplicationsConfig(declared=("billing=meters/#",)),
    )
    found = look(config, ports=False)
    assert [finding.path for finding in found.problems] == [
        "forwarders.nowhere.bootstrap",
        "forwarders.aside.filter",
        "forwarders.dead.dead_letter",
        "applications.bootstrap",
    ]
    with pytest.raises(ConfigError, match="address of a Kafka broker"):
        found.ready()
