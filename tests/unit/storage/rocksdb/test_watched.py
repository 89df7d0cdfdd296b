"""What is noted of the files of a database while it is written to."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.starting import Watched
from perdure.storage.rocksdb.survey import Survey
from perdure.storage.rocksdb.synced import SyncedFile, read_synced


class Still:
    """An engine that does nothing: the test changes the files."""

    tables: frozenset[str] = frozenset()

    def sequence(self) -> int:
        return 1

    def sync(self) -> None: ...


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "CURRENT").write_text("MANIFEST-000003\n")
    (tmp_path / "MANIFEST-000003").write_bytes(bytes(100))
    (tmp_path / "000004.log").write_bytes(bytes(50))
    return Watched(cast("Engine", Still()), SyncedFile(tmp_path), Survey(tmp_path))


def look(watched: Watched) -> tuple[dict[int, int], int]:
    """Sync with a look; (logs, length of the manifest) that are noted then."""
    watched._look_at = 0.0
    watched.sync()
    files = read_synced(watched._synced.path).files
    assert files is not None
    return dict(files.logs), files.manifest_bytes


def test_a_log_is_missed_until_the_manifest_that_gave_it_up_is_noted(
    watched: Watched, tmp_path: Path
) -> None:
    """The manifest's length is that of the look before. If its end is lost, and with it that a log
    was given up, the log is needed; to have forgotten it by then would hide the loss."""
    look(watched)
    assert look(watched) == ({4: 50}, 100)
    # A flush: the manifest says so, and the log is deleted.
    (tmp_path / "MANIFEST-000003").write_bytes(bytes(180))
    (tmp_path / "000007.log").write_bytes(b"")
    (tmp_path / "000004.log").unlink()
    assert look(watched) == ({4: 50, 7: 0}, 100)
    assert look(watched) == ({7: 0}, 180)
