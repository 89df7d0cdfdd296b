"""A checkpoint as one stream of bytes: how a node that joins gets a peer's state.

A tar (GNU): the files of the database, then ``manifest.json``, which is the manifest of a backup
and says what all of it should have been. Before that has come and fits, there is nothing.

It is exact: sessions are not estranged, since the node goes on in the same log.
"""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final, Protocol

from perdure.backup.filling import Filling, filling
from perdure.backup.manifest import (
    MANIFEST_BYTES_MAX,
    BackupFile,
    BackupManifest,
    backup_id,
    decode_manifest,
    encode_manifest,
    is_file_name,
)
from perdure.backup.place import CHUNK_BYTES, Copied
from perdure.backup.staging import staged_checkpoint
from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.storage.rocksdb.checkpoint import is_database_file

MANIFEST: Final = "manifest.json"
MEDIA_TYPE: Final = "application/x-tar"
_BLOCK: Final = tarfile.BLOCKSIZE


class Readable(Protocol):
    """What the stream is read from."""

    def read(self, size: int = ..., /) -> bytes:
        """So many bytes at most."""
        ...


def checkpoint_stream(
    data: Path, *, config: RocksdbConfig, version: str, now_us: int
) -> Generator[bytes, None, None]:
    """The pieces of a checkpoint of a data directory; close it to let go of the checkpoint.

    Args:
        data: the data directory; a broker may have it open.
        config: of the database.
        version: release.
        now_us: wall time.

    Raises:
        StorageError: there is no database, it is damaged, or the disk does not let us.
    """
    with staged_checkpoint(data, config) as checkpoint:
        files: list[BackupFile] = []
        for staged in checkpoint.files:
            if not is_database_file(staged.name):
                continue
            digest = hashlib.sha256()
            size = staged.path.stat().st_size
            yield _header(staged.name, size)
            with staged.path.open("rb") as file:
                while piece := file.read(CHUNK_BYTES):
                    digest.update(piece)
                    yield piece
            yield _padding(size)
            files.append(BackupFile(staged.name, size, digest.hexdigest()))
        manifest = encode_manifest(
            BackupManifest(
                id=backup_id(now_us),
                perdure=version,
                database_id=checkpoint.database_id,
                database_format=checkpoint.database_format,
                position=checkpoint.position,
                made_at_us=now_us,
                sessions=checkpoint.sessions,
                retained=checkpoint.retained,
                messages=checkpoint.messages,
                files=tuple(files),
                size=sum(file.size for file in files),
            )
        )
        yield _header(MANIFEST, len(manifest))
        yield manifest
        yield _padding(len(manifest)) + b"\0" * (2 * _BLOCK)


def take_stream(
    stream: Readable,
    data: Path,
    *,
    config: RocksdbConfig,
    copied: Copied = lambda _: None,
    checking: Callable[[], None] = lambda: None,
    rows: bool = False,
) -> BackupManifest:
    """Make a data directory from a stream, and verify it.

    Its files are those that the peer has read, and its owner runs on them: each row is looked at
    only for who asks, since that takes many times as long as all else.

    Args:
        stream: of a checkpoint.
        data: an empty directory, or none.
        config: of the database.
        copied: told of each piece.
        checking: told that all of it has come.
        rows: verify each row too, as ``perdure storage check``.

    Raises:
        ConfigError: the directory is not empty.
        StorageUnavailable: the stream ended early; nothing is there then that a broker starts on.
        StorageCorrupt: what came is not what was sent.
    """
    with filling(data) as target:
        manifest = _unpack(stream, target, copied)
        checking()
        target.check_opens(config, manifest)
        if rows:
            target.check(config)
        target.finish()
    return manifest


def _unpack(stream: Readable, target: Filling, copied: Copied) -> BackupManifest:
    came: dict[str, tuple[int, str]] = {}
    manifest: BackupManifest | None = None
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK_BYTES) as tar:  # type: ignore[call-overload]
            for member in tar:
                with contextlib.closing(tar.extractfile(member)) as content:
                    if member.name == MANIFEST:
                        data = content.read(MANIFEST_BYTES_MAX)
                        manifest = decode_manifest(data, MANIFEST)
                        break
                    if not is_file_name(member.name) or not is_database_file(member.name):
                        raise StorageCorrupt(f"the checkpoint holds {member.name!r}")
                    target.check_room(member.size)
                    came[member.name] = target.write(member.name, _pieces(content, copied))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StorageUnavailable(f"the checkpoint ended early: {error}") from error
    if manifest is None:
        raise StorageUnavailable("the checkpoint ended early", hint="fetch it again")
    if {file.name: (file.size, file.sha256) for file in manifest.files} != came:
        raise StorageCorrupt("the checkpoint is not what was sent", hint="fetch it again")
    return manifest


def _pieces(content: Readable, copied: Copied) -> Iterator[bytes]:
    while piece := content.read(CHUNK_BYTES):
        copied(len(piece))
        yield piece


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)
