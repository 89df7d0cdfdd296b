"""The file that says how far the database was synced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from perdure.errors import StorageFull, StorageUnavailable
from perdure.storage.rocksdb.synced import (
    FILE_NAME,
    Claim,
    Files,
    Said,
    SyncedFile,
    read_synced,
    unusable,
)

FILES = Files(((4, 100), (7, 0)), "MANIFEST-000005", 300, {0: "default", 4: "g00000001.data"})


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    assert read_synced(tmp_path) == Said(None, None)
    synced = SyncedFile(tmp_path)
    assert read_synced(tmp_path).claim == Claim(0, 0)
    synced.begin(5)
    assert read_synced(tmp_path).claim == Claim(5, 5)
    synced.reached(9)
    synced.reached(9)
    synced.reached(12)
    synced.note_files(FILES)
    size = (tmp_path / FILE_NAME).stat().st_size
    assert read_synced(tmp_path) == Said(Claim(12, 9), FILES)
    synced.close(sync=True)
    again = SyncedFile(tmp_path)
    again.reached(20)
    again.close(sync=False)
    assert read_synced(tmp_path).claim == Claim(20, 12)
    assert (tmp_path / FILE_NAME).stat().st_size == size


@pytest.mark.parametrize("at", [0, 4, 10, 23, 512, 520, 540])
def test_a_flipped_byte_is_no_claim(tmp_path: Path, at: int) -> None:
    synced = SyncedFile(tmp_path)
    synced.begin(5)
    synced.note_files(FILES)
    synced.close(sync=False)
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    data[at] ^= 1
    (tmp_path / FILE_NAME).write_bytes(data)
    said = read_synced(tmp_path)
    assert said == (Said(None, FILES) if at < 512 else Said(Claim(5, 5), None))
    (tmp_path / FILE_NAME).write_bytes(data[:at])
    assert None in read_synced(tmp_path)


def test_errors_are_of_our_tree(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        SyncedFile(tmp_path / "missing")
    assert isinstance(unusable(tmp_path, OSError(errno.ENOSPC, "full")), StorageFull)
