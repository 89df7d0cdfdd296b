"""What every place does: a directory and an S3 store through the same cases."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from perdure.backup.directory import DirectoryPlace
from perdure.backup.manifest import MARKER, OBJECTS, object_name
from perdure.backup.place import Place, RateLimiter
from perdure.backup.places import open_place
from perdure.errors import ConfigError, FormatTooNew, StorageCorrupt, StorageLocked


def test_what_was_put_is_found_read_and_deleted(place: Place, tmp_path: Path) -> None:
    place.make()
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    pieces: list[int] = []
    sha256, size = place.put_file(source, pieces.append)
    assert (sha256, size) == (hashlib.sha256(source.read_bytes()).hexdigest(), 3_000_000)
    assert sum(pieces) == size
    place.settle()
    found = place.find(OBJECTS)
    assert {name: each.size for name, each in found.items()} == {object_name(sha256): size}
    assert found[object_name(sha256)].age_s < 60
    assert b"".join(place.read(object_name(sha256))) == source.read_bytes()
    place.put("backups/b.json", b"one")
    place.put("backups/b.json", b"two")
    assert b"".join(place.read("backups/b.json")) == b"two"
    place.delete([object_name(sha256), "backups/none"])
    assert place.find(OBJECTS) == {}
    with pytest.raises(StorageCorrupt, match="missing"):
        list(place.read(object_name(sha256)))


def test_a_place_is_one_of_ours_or_empty(place: Place) -> None:
    place.make()
    place.make()
    place.put(MARKER, b'{"kind": "perdure-backups", "format": 2}')
    with pytest.raises(FormatTooNew, match="format 2"):
        place.make()
    place.put(MARKER, b"what")
    with pytest.raises(StorageCorrupt):
        place.make()
    place.delete([MARKER])
    place.put("holiday.jpg", b"")
    with pytest.raises(ConfigError, match="no place of backups"):
        place.make()


def test_two_cannot_change_a_directory_at_once(directory: DirectoryPlace) -> None:
    directory.make()
    with directory.lock(), pytest.raises(StorageLocked), DirectoryPlace(Path(directory.url)).lock():
        pass
    with directory.lock():
        pass


def test_a_store_that_refuses_is_said_so(bucket_url: str) -> None:
    other = open_place(bucket_url.replace("s3://kept", "s3://absent"))
    with pytest.raises(ConfigError, match="bucket"):
        other.make()
    other._client.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "url", ["", "ftp://host/x", "s3://", "s3://bucket/x?secret=1", "gs://bucket"]
)
def test_urls_that_name_no_place(url: str) -> None:
    with pytest.raises(ConfigError):
        open_place(url)


def test_a_pace_keeps_its_rate() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    seen: list[int] = []
    limiter = RateLimiter(1_000, seen.append, clock=lambda: now[0], sleep=sleep)
    for _ in range(10):
        limiter(500)
    assert seen[-1] == 5_000
    assert now[0] == pytest.approx(5.0)
    now[0] += 100  # an idle time is not made up for by more than a second's worth
    before = now[0]
    for _ in range(10):
        limiter(500)
    assert now[0] - before == pytest.approx(4.0)


@pytest.mark.parametrize("within", ["", "backups", "a/../b"])
def test_no_backup_goes_into_what_it_is_of(tmp_path: Path, within: str) -> None:
    data = tmp_path / "data"
    with pytest.raises(ConfigError, match="in the data directory"):
        open_place(f"{data}/{within}", data=data)
    (tmp_path / "link").symlink_to(data)
    with pytest.raises(ConfigError, match="in the data directory"):
        open_place(f"file://{tmp_path}/link/{within}", setting="backup.to", data=data)
    open_place(f"{tmp_path}/data-backups", data=data)
