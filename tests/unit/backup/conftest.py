"""A database that many tests back up, and places for backups: a directory, and a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from perdure.backup.directory import DirectoryPlace
from perdure.backup.manifest import BackupManifest
from perdure.backup.place import Place
from perdure.backup.places import open_place
from perdure.backup.taking import take_backup
from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, message, record
from tests.support.staged import Staged
from tests.unit.fixtures import niced

__all__ = ["niced"]

CONFIG = RocksdbConfig()
BUCKET = "kept"


def back_up(data: Path, place: Place, **options: Any) -> BackupManifest:
    """Take a backup as the commands do."""
    return take_backup(data, place, config=CONFIG, version="1.2.3", now_us=NOW_US, **options)


def write(database: RocksDatabase, *topics: str, at_us: int = NOW_US, retain: bool = False) -> None:
    """Record a message on each topic."""
    batch = Staged(database)
    for topic in topics:
        sent = message(topic, qos=1, retain=retain)
        batch.append(sent, at_us)
        if retain:
            batch.put_retained(sent)
    batch.write()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker's directory with a message, a session and bans."""
    path = tmp_path / "data"
    database = RocksDatabase.open(path, config=CONFIG, now_us=NOW_US)
    write(database, "a/1")
    batch = Staged(database)
    batch.put_session(record("c1"))
    batch.write()
    database.close()
    (path / "side.file").write_text("client x\n")
    (path / "cursors").mkdir()
    (path / "cursors" / "archive").write_text("7")
    return path


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An S3-compatible server; its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket_url(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix in an empty bucket."""
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3_server)
    client.create_bucket(Bucket=BUCKET)
    yield f"s3://{BUCKET}/fleet/one?endpoint={s3_server}"
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=each["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryPlace:
    """A place in a directory."""
    return DirectoryPlace(tmp_path / "backups")


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each kind of place."""
    if request.param == "directory":
        yield DirectoryPlace(tmp_path / "backups")
        return
    opened = open_place(request.getfixturevalue("bucket_url"))
    yield opened
    opened._client.close()  # type: ignore[attr-defined]


Reopen = Callable[[Path], RocksDatabase]
