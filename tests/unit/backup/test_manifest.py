"""The record of a backup: what is written stays readable, and nothing else is read."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from perdure.backup.manifest import (
    BackupFile,
    BackupManifest,
    backup_id,
    decode_manifest,
    encode_manifest,
    id_at_us,
)
from perdure.errors import FormatTooNew, StorageCorrupt

SUM = "ab" * 32
MANIFEST = BackupManifest(
    id="20261123T101500.000001Z",
    perdure="0.1.0",
    database_id="d",
    database_format=1,
    position=7,
    made_at_us=1_795_000_000_000_000,
    sessions=1,
    retained=2,
    messages=3,
    files=(BackupFile("000012.sst", 5, SUM, 9),),
)
GOLDEN = (
    b'{"id":"20261123T101500.000001Z","perdure":"0.1.0","database_id":"d","database_format":1,'
    b'"position":7,"made_at_us":1795000000000000,"sessions":1,"retained":2,"messages":3,'
    b'"files":[{"name":"000012.sst","size":5,"sha256":"' + SUM.encode() + b'","mtime_ns":9}],'
    b'"size":0,"copied":0,"seconds":0.0,"source":"","format":1}'
)


def with_sum(text: bytes) -> bytes:
    return text + b"\n" + hashlib.sha256(text).hexdigest().encode() + b"\n"


def test_the_golden_record() -> None:
    golden = with_sum(GOLDEN)
    assert encode_manifest(MANIFEST) == golden
    assert decode_manifest(golden, "m") == MANIFEST


@pytest.mark.parametrize("at", [0, 10, 200, -2, -30])
def test_a_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(encode_manifest(MANIFEST))
    data[at] ^= 1
    with pytest.raises(StorageCorrupt):
        decode_manifest(bytes(data), "m")


@pytest.mark.parametrize("kept", [0, 1, 100, -1, -65])
def test_a_record_that_is_cut_is_noticed(kept: int) -> None:
    with pytest.raises(StorageCorrupt):
        decode_manifest(encode_manifest(MANIFEST)[:kept], "m")


def test_a_later_format_is_refused() -> None:
    record: dict[str, Any] = msgspec.to_builtins(MANIFEST)
    later = msgspec.json.encode({**record, "format": 2, "files": "elsewhere"})
    with pytest.raises(FormatTooNew, match="format 2; this release reads 1"):
        decode_manifest(with_sum(later), "m")


@pytest.mark.parametrize(
    "file",
    [
        BackupFile("../x", 1, SUM),
        BackupFile("/etc/passwd", 1, SUM),
        BackupFile("a/../../x", 1, SUM),
        BackupFile("a//b", 1, SUM),
        BackupFile("", 1, SUM),
        BackupFile("x\0", 1, SUM),
        BackupFile("x", -1, SUM),
        BackupFile("x", 1, "../../x"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(file: BackupFile) -> None:
    hostile = msgspec.structs.replace(MANIFEST, files=(file,))
    with pytest.raises(StorageCorrupt):
        decode_manifest(encode_manifest(hostile), "m")


def test_names_ascend_with_time() -> None:
    times = [1_795_000_000_000_000 + step for step in (0, 1, 999_999, 1_000_000, 10**12)]
    names = [backup_id(at) for at in times]
    assert names == sorted(names)
    assert [id_at_us(name) for name in names] == times
    assert id_at_us("x") == 0
