"""A checkpoint over HTTP: it comes whole and exact, or not at all."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from perdure.backup import filling
from perdure.backup.fetching import PATH, fetch_checkpoint
from perdure.backup.manifest import decode_manifest, encode_manifest
from perdure.backup.stream import MANIFEST, checkpoint_stream, take_stream
from perdure.broker.auth.bans import BanFile, make_ban
from perdure.cli.main import run
from perdure.errors import ConfigError, PerdureError, StorageCorrupt, StorageUnavailable
from perdure.model import Cursor
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, record
from tests.support.staged import Staged
from tests.unit.backup.conftest import CONFIG

TOKEN = "t" * 40


def stream_of(data: Path) -> bytes:
    return b"".join(checkpoint_stream(data, config=CONFIG, version="1", now_us=NOW_US))


def started(path: Path) -> bool:
    """Whether something is there that a broker starts on."""
    try:
        database = RocksDatabase.open(path, config=CONFIG)
    except PerdureError:
        return False
    count = asyncio.run(database.session_count())
    database.close()
    return count > 0


class Peer(HTTPServer):
    """Serves one stream, as a node does."""

    body = b""


class Handler(BaseHTTPRequestHandler):
    """Answers one path."""

    server: Peer

    def do_GET(self) -> None:
        if self.path != PATH or self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_response(401)
            self.end_headers()
            self.wfile.write(b'{"code": "unauthorized", "message": "no", "hint": "a token"}')
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def url(peer: Peer) -> str:
    return f"http://127.0.0.1:{peer.server_address[1]}"


def test_what_comes_is_exact(data: Path, tmp_path: Path, peer: Peer) -> None:
    database = RocksDatabase.open(data, config=CONFIG)
    batch = Staged(database)
    batch.put_session(record("c2", epoch=4, protocol=5))
    batch.put_cursor("c2", Cursor(7, 5, (), (6,), 6), epoch=4)
    batch.put_awaiting_release("c2", 9, epoch=4)
    batch.write()
    database.apply(Staged(database)._batch, [(b"position", b"17")])
    peer.body = stream_of(data)  # beside its owner
    copied: list[int] = []
    manifest = fetch_checkpoint(
        url(peer), TOKEN, tmp_path / "to", config=CONFIG, copied=copied.append
    )
    assert sum(copied) == manifest.size
    assert (manifest.sessions, manifest.messages) == (2, 1)
    found = RocksDatabase.open(tmp_path / "to", config=CONFIG)
    for client_id in ("c1", "c2"):
        assert asyncio.run(found.open_session(client_id)) == asyncio.run(
            database.open_session(client_id)
        )
    assert found.notes() == database.notes() == [(b"position", b"17")]
    assert found.last_offset == database.last_offset
    found.close()
    database.close()
    # What belongs to one node stays there.
    assert not (tmp_path / "to" / "side.file").exists()
    assert not (data / "checkpoints").exists()


def test_a_stream_that_ends_early_or_was_changed(data: Path, tmp_path: Path) -> None:
    whole = stream_of(data)
    to = tmp_path / "to"
    # Behind the manifest there is only padding.
    for kept in range(0, whole.rindex(b"\n"), max(1, len(whole) // 23)):
        with pytest.raises((StorageUnavailable, StorageCorrupt)):
            take_stream(io.BytesIO(whole[:kept]), to, config=CONFIG)
        assert not started(to)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        table = next(member for member in tar if member.name.endswith(".sst"))
    changed = bytearray(whole)
    changed[table.offset_data + 50] ^= 1
    with pytest.raises(StorageCorrupt, match="not what was sent"):
        take_stream(io.BytesIO(bytes(changed)), to, config=CONFIG)
    assert not started(to)
    take_stream(io.BytesIO(whole), to, config=CONFIG)
    assert started(to)
    with pytest.raises(ConfigError, match="not empty"):
        take_stream(io.BytesIO(whole), to, config=CONFIG)


def test_a_manifest_that_describes_another_database(data: Path, tmp_path: Path) -> None:
    """Checksums alone do not say that all of it belongs together."""
    whole = stream_of(data)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        content = tar.extractfile(MANIFEST)
        assert content is not None
        told = decode_manifest(content.read(), MANIFEST)
        at = tar.getmember(MANIFEST).offset_data
    for name in ("position", "sessions", "retained", "messages"):
        other = encode_manifest(msgspec.structs.replace(told, **{name: getattr(told, name) + 1}))
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(other)
        changed = whole[: at - tarfile.BLOCKSIZE] + info.tobuf(tarfile.GNU_FORMAT) + other
        with pytest.raises(StorageCorrupt, match="described"):
            take_stream(
                io.BytesIO(changed.ljust(len(whole) + 8192, b"\0")), tmp_path / "to", config=CONFIG
            )
        assert not started(tmp_path / "to")


@pytest.mark.parametrize("is_wanted", [False, True])
def test_rows_are_looked_at_for_who_asks(
    is_wanted: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    monkeypatch.setattr(filling, "inspect", lambda path, _: looked.append(path) or ())
    take_stream(io.BytesIO(stream_of(data)), tmp_path / "to", config=CONFIG, rows=is_wanted)
    assert bool(looked) == is_wanted
    assert started(tmp_path / "to")


@pytest.mark.parametrize("name", ["../x.sst", "/tmp/000001.sst", "side.file", "admin.sock"])
def test_names_that_are_no_part_of_a_database(name: str, data: Path, tmp_path: Path) -> None:
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
        tar.addfile(tarfile.TarInfo(MANIFEST))
    hostile.seek(0)
    with pytest.raises(StorageCorrupt, match="holds"):
        take_stream(hostile, tmp_path / "to", config=CONFIG)
    assert not (tmp_path / "x.sst").exists()


def test_a_consumer_that_goes_away_leaves_nothing(data: Path) -> None:
    pieces = checkpoint_stream(data, config=CONFIG, version="1", now_us=NOW_US)
    next(pieces)
    assert (data / "checkpoints").exists()
    pieces.close()
    assert not (data / "checkpoints").exists()


def test_peers_that_are_none(peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="401: no"):
        fetch_checkpoint(url(peer), "wrong", tmp_path / "to", config=CONFIG)
    with pytest.raises(ConfigError, match="names no peer"):
        fetch_checkpoint("n1:18083", TOKEN, tmp_path / "to", config=CONFIG)
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        fetch_checkpoint("http://127.0.0.1:1", TOKEN, tmp_path / "to", config=CONFIG)
    assert not (tmp_path / "to").exists()


def test_init_and_join_by_command(
    data: Path,
    tmp_path: Path,
    peer: Peer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = RocksDatabase.open(data, config=CONFIG)
    init = ["cluster", "init", "--data", str(data), "--json"]
    assert run(init) == 75
    assert "a broker runs" in capsys.readouterr().err
    database.close()
    assert run([*init, "--to", str(tmp_path / "b")]) == 0
    shown = capsys.readouterr()
    assert "bans" not in shown.err
    made = json.loads(shown.out)
    assert (made["position"], made["sessions"]) == (NOW_US, 1)
    assert made["backup"]
    BanFile(data / "bans").add(make_ban("client_id", "villain"), now_us=NOW_US)
    assert run(init) == 0
    assert "bans (1) hold on all nodes as soon as it has started" in capsys.readouterr().err
    assert run([*init, "--set", f"auth.ban_file={data / 'bans'}"]) == 0
    assert "(1 bans) stays this node's own" in capsys.readouterr().err
    peer.body = stream_of(data)
    join = ["cluster", "join", "--from", url(peer), "--data", str(tmp_path / "n2"), "--json"]
    assert run(join) == 64
    monkeypatch.setenv("PERDURE_TOKEN", TOKEN)
    capsys.readouterr()
    assert run(join) == 0
    assert json.loads(capsys.readouterr().out)["position"] == NOW_US
    assert run(join) == 78
    node = RocksDatabase.open(tmp_path / "n2", config=CONFIG)
    node.apply(Staged(node)._batch, [(b"position", b"17")])
    node.close()
    assert run(["cluster", "init", "--data", str(tmp_path / "n2")]) == 64
    (tmp_path / "n2" / next((tmp_path / "n2").glob("*.sst")).name).write_bytes(b"")
    assert run(["cluster", "init", "--data", str(tmp_path / "n2")]) == 65
