"""What a reader of a directory is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import FormatTooNew, StorageCorrupt, StorageError, StorageUnavailable
from perdure.storage.rocksdb.status import named


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (StorageCorrupt("Corruption: x"), "{path}: Corruption: x", ""),
        (FormatTooNew("it has layout 9"), "{path}: it has layout 9", "a later release"),
        (FormatTooNew("x", hint="y"), "{path}: x", "y"),
        (StorageUnavailable("IO error: x"), "{path}: IO error: x", ""),
    ],
)
def test_an_error_names_its_directory(
    error: StorageError, message: str, hint: str, tmp_path: Path
) -> None:
    found = named(error, tmp_path)
    assert type(found) is type(error)
    assert found.message == message.format(path=tmp_path)
    assert found.hint.startswith(hint)
    assert bool(found.hint) == bool(hint)
    assert named(found, tmp_path).message == found.message


def test_where_a_file_may_not_be_read(tmp_path: Path) -> None:
    found = named(StorageUnavailable(f"IO error: {tmp_path}/1.sst: Permission denied"), tmp_path)
    assert "must be allowed to read" in found.hint
