"""What is damaged is found behind the first damage, too, and repaired with nothing thrown away."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt, StorageLocked
from perdure.model import Subscription
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import RocksDatabase, inspection, keys
from perdure.storage.rocksdb.directory import DirectoryLock
from perdure.storage.rocksdb.engine import META, RETAINED, STATE, Engine
from perdure.storage.rocksdb.frames import BLOCK_BYTES, Frames
from perdure.storage.rocksdb.inspection import has_owner, inspect
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.manifest import TableFile, read_manifest
from perdure.storage.rocksdb.repair import repair_directory
from perdure.storage.rocksdb.skipping import SkippingEngine
from perdure.storage.rocksdb.synced import SyncedFile, read_synced
from perdure.topic.proposal import Structure
from tests.contract.values import NOW_US, append_all, message, read_all, record
from tests.support.staged import Staged

CONFIG = RocksdbConfig()
MESSAGES = 2_000
TOPICS = 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Sessions and messages, half of them in tables and half in a write-ahead log."""
    running = tmp_path / "running"
    for part in range(2):
        database = RocksDatabase.open(running, now_us=NOW_US)
        batch = Staged(database)
        for number in range(4):
            batch.put_session(record(f"c{part}-{number}"))
            batch.put_subscription(
                f"c{part}-{number}", Subscription(f"t/{number}/#", qos=1), epoch=1
            )
        batch.write()
        for first in range(0, MESSAGES // 2, 20):
            some = [message(f"t/{n % TOPICS}", b"%04d" % n * 30) for n in range(first, first + 20)]
            append_all(database, *some)
            database.sync()
        if not part:
            database.close()
    shutil.copytree(running, tmp_path / "d")
    database.close()
    return tmp_path / "d"


def largest(path: Path, kind: str) -> Path:
    return max(path.glob(kind), key=lambda file: file.stat().st_size)


def flip(file: Path, *places: float) -> None:
    data = bytearray(file.read_bytes())
    for place in places:
        data[int(len(data) * place)] ^= 4
    file.write_bytes(data)


def repaired(path: Path) -> tuple[int, int]:
    """Repair; messages and sessions that are left, with which all is well."""
    said: list[str] = []
    assert list(inspect(path, CONFIG))
    aside = repair_directory(path, CONFIG, stamp="1", say=said.append)
    assert aside == path / "damaged-1"
    assert said
    assert any(aside.iterdir())
    assert list(inspect(path, CONFIG)) == []
    database = RocksDatabase.open(path)
    messages = asyncio.run(read_all(database, "#"))
    sessions = asyncio.run(database.session_count())
    append_all(database, message("after"))
    database.close()
    return len(messages), sessions


def test_nothing_is_wrong(path: Path) -> None:
    assert list(inspect(path, CONFIG)) == []


def test_a_batch_of_a_log(path: Path) -> None:
    flip(largest(path, "*.log"), 0.5)
    with pytest.raises(StorageCorrupt):
        RocksDatabase.open(path)
    assert repaired(path) == (MESSAGES - 20, 8)


@pytest.mark.parametrize("part", ["all", "end"])
def test_records_of_a_log_that_are_no_batches(path: Path, part: str) -> None:
    """A manifest has records of the same kind, with checksums that are right."""
    log, other = largest(path, "*.log"), largest(path, "MANIFEST-*").read_bytes()
    data = log.read_bytes()
    if part == "end":
        data = data[: len(data) // BLOCK_BYTES * BLOCK_BYTES] + other
    log.write_bytes(other if part == "all" else data)
    messages, sessions = repaired(path)
    if part == "all":
        assert (messages, sessions) == (MESSAGES // 2, 4)
    else:
        assert MESSAGES // 2 < messages < MESSAGES
        assert sessions == 8


def test_blocks_of_a_table(path: Path) -> None:
    table = largest(path, "*.sst")
    flip(table, 0.2, 0.7)
    problems = [finding.problem for finding in inspect(path, CONFIG)]
    places = [problem for problem in problems if problem.startswith(f"{table.name}: bytes")]
    assert len(places) == 2
    assert "messages of generation 1, topics t/" in places[0]
    assert "1970" not in places[0]
    assert any(problem.startswith("session 'c0-") for problem in problems)
    messages, sessions = repaired(path)
    assert MESSAGES * 0.8 < messages < MESSAGES
    assert sessions == 8
    assert (path / "damaged-1" / table.name).exists()


def test_damage_in_files_that_are_about_to_be_merged(path: Path) -> None:
    """RocksDB merges files of a table by itself, and takes no writes once that has failed."""
    for part in range(20):
        database = RocksDatabase.open(path, now_us=NOW_US)
        batch = Staged(database)
        batch.put_session(record(f"d{part}"))
        batch.write()
        database.sync()
        manifest = read_manifest(largest(path, "MANIFEST-*"))
        state = [each for each in manifest.files.values() if manifest.tables[each.family] == STATE]
        if len(state) == 3:
            break
        database.close()
    harmed = path.with_name("harmed")
    shutil.copytree(path, harmed)
    database.close()
    flip(harmed / state[0].name, 0.01)
    repaired(harmed)


def test_a_table_that_does_not_say_what_it_is(path: Path) -> None:
    """Its end is where RocksDB begins to read: what is in it is told as of one that is missing."""
    table = largest(path, "*.sst")
    flip(table, 0.9999)
    problems = {finding.problem: finding for finding in inspect(path, CONFIG)}
    first = next(iter(problems))
    assert first.startswith("it cannot be opened (Corruption: ")
    assert first.split("; ")[-1].startswith("it holds rows of table g00000001.data")
    assert problems[first].table == table.name
    assert not any("MANIFEST" in problem for problem in problems)
    assert any("may miss messages of 't/1/#'" in problem for problem in problems)
    assert repaired(path) == (MESSAGES // 2, 8)


def test_a_table_that_is_missing(path: Path) -> None:
    table = largest(path, "*.sst")
    table.unlink()
    problems = [finding.problem for finding in inspect(path, CONFIG)]
    assert problems[0].startswith("it is missing; it holds rows of table g00000001.data")
    assert any("may miss messages of 't/1/#'" in problem for problem in problems)
    assert repaired(path) == (MESSAGES // 2, 8)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: (path / "CURRENT").unlink(),
        lambda path: (path / "CURRENT").write_bytes(b"\0" * 16),
        lambda path: largest(path, "MANIFEST-*").unlink(),
        lambda path: flip(largest(path, "MANIFEST-*"), 0.3),
    ],
)
def test_what_lists_the_tables(path: Path, harm: Callable[[Path], object]) -> None:
    harm(path)
    assert repaired(path) == (MESSAGES, 8)


def test_a_garbled_list_of_tables_is_not_given_to_rocksdb(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some bytes flipped it reads such a list for ever."""
    flip(largest(path, "MANIFEST-*"), 0.3)

    def opened(*_: object, **__: object) -> None:
        pytest.fail("RocksDB was to open it")

    monkeypatch.setattr(RocksDatabase, "open", opened)
    (finding,) = inspect(path, CONFIG)
    assert "it lists the tables" in finding.problem


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_manifest_that_lost_its_end(path: Path, before: int) -> None:
    """Nothing says how long it was: the tables that it does not list any more do."""
    manifest = largest(path, "MANIFEST-*")
    data = manifest.read_bytes()
    frames = Frames(data)
    ends = [0]
    while frames.next():
        ends.append(frames.end)
    noted = read_synced(path)
    assert noted.files is not None
    synced = SyncedFile(path)
    synced.note_files(msgspec.structs.replace(noted.files, manifest="", manifest_bytes=0))
    synced.close(sync=False)
    listing = [n for n in range(len(ends)) if not listed(manifest, data[: ends[n]])]
    # The last of these lists no table; some of what it does not list has no log any more.
    manifest.write_bytes(data[: ends[listing[-1 - before]]])
    with pytest.raises(StorageCorrupt, match="MANIFEST"):
        RocksDatabase.open(path)
    assert repaired(path) == (MESSAGES, 8)


def test_a_list_of_tables_that_is_older_than_the_files(path: Path) -> None:
    """What it lists and is not there was merged since, or is missing: nobody knows."""
    manifest, table = largest(path, "MANIFEST-*"), largest(path, "*.sst")
    noted = read_synced(path)
    assert noted.files is not None
    size = manifest.stat().st_size + 1
    synced = SyncedFile(path)
    synced.note_files(
        msgspec.structs.replace(noted.files, manifest=manifest.name, manifest_bytes=size)
    )
    synced.close(sync=False)
    table.unlink()
    problems = {finding.table: finding.problem for finding in inspect(path, CONFIG)}
    assert problems[manifest.name] == f"it has {size - 1} bytes, and had {size}"
    assert problems[table.name].endswith("merged since the list was written, or missing")
    with pytest.raises(StorageCorrupt, match=manifest.name):
        RocksDatabase.open(path)


def listed(manifest: Path, data: bytes) -> dict[int, TableFile]:
    """The table files that a manifest lists."""
    manifest.write_bytes(data)
    return read_manifest(manifest).files


def test_the_rows_that_say_what_the_tables_are(path: Path) -> None:
    """``perdure.synced`` has them, too: without them no message could be read."""
    (table,) = [
        file
        for file in read_manifest(largest(path, "MANIFEST-*")).files.values()
        if not file.family and file.smallest <= keys.FORMAT
    ]
    before = rows_of(path)
    (path / table.name).unlink()
    said: list[str] = []
    repair_directory(path, CONFIG, stamp="1", say=said.append)
    assert any("that say what the tables are were lost: made anew" in each for each in said)
    assert rows_of(path) == before
    database = RocksDatabase.open(path)
    assert asyncio.run(database.session_count()) == 8
    database.close()


def rows_of(path: Path) -> dict[bytes, bytes]:
    """The rows that say what a database is."""
    database = RocksDatabase.open(path, read_only=True)
    engine, _ = database.tables()
    found = dict(engine.items(META, *keys.IDENTITY))
    database.close()
    return found


def test_subscriptions_by_filter(path: Path) -> None:
    """What is missing in an index is made again, what is too much in it goes."""
    lost = keys.subscriber("t/1/#", "c0-1", "t/1/#", 0)
    extra = keys.subscriber("t/1/#", "nobody", "t/1/#", 0)
    engine = Engine(path, CONFIG)
    assert engine.get(STATE, lost) is not None
    engine.write([STATE, lost, None, STATE, extra, b""])
    engine.close()
    assert repaired(path) == (MESSAGES, 8)
    engine = Engine(path, CONFIG, read_only=True)
    assert (engine.get(STATE, lost), engine.get(STATE, extra)) == (b"", None)
    engine.close()
    assert extra.hex() in (path / "damaged-1" / "rows.tsv").read_text()


def test_runs_of_the_index(path: Path) -> None:
    """Of some only a part is wrong: all their rows have entries again, and what was is kept."""
    database = RocksDatabase.open(path)
    database.rotate_to(Structure((0,), ("runs/+",)), NOW_US + 10**9)
    append_all(database, *(message(f"runs/{n % 4}") for n in range(40)), now_us=NOW_US + 10**9)
    database.close()
    engine = Engine(path, CONFIG)
    index = table_names(2)[1]
    wrong = list(engine.items(index, b"", b"\xff" * 32))
    assert [len(value) for _, value in wrong] == [72] * 4
    changes = (
        lambda value: value[:-1],
        lambda value: bytes(8) + value,
        lambda value: value[:16] + value[24:],
        lambda _value: None,
    )
    for (key, value), change in zip(wrong, changes, strict=True):
        engine.write([index, key, change(value)])
    engine.close()
    assert repaired(path) == (MESSAGES + 40, 8)
    kept = (path / "damaged-1" / "rows.tsv").read_text()
    assert kept.count("\n") == 2
    assert all(key.hex() in kept for key, _ in wrong[:2])
    database = RocksDatabase.open(path)
    for number in range(4):
        assert len(asyncio.run(read_all(database, f"runs/{number}"))) == 10
    database.close()


def test_retained_messages(path: Path) -> None:
    """Their number and their bytes are counted anew: ``limits.retained_bytes_max`` goes by them."""
    database = RocksDatabase.open(path, now_us=NOW_US)
    batch = Staged(database)
    for number in range(3):
        batch.put_retained(message(f"r/{number}", b"x" * 100, offset=1))
    batch.write()
    whole = database.retained_bytes
    database.close()
    engine = Engine(path, CONFIG)
    engine.write([RETAINED, retained_key("r/1"), None])
    engine.close()
    repaired(path)
    database = RocksDatabase.open(path)
    assert 3 * database.retained_bytes == 2 * whole
    database.close()


def test_a_range_that_ends_in_what_cannot_be_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB may read a block for an empty range, too: the end of the range is the end."""
    engine = SkippingEngine(path, CONFIG, read_only=True)

    def broken(self: Engine, table: str, first: bytes, end: bytes) -> Iterator[bytes]:
        if b"b" <= first < b"x":
            raise StorageCorrupt("000001.sst offset 1 size 2")
        yield from [key for key in (b"a",) if first <= key < end]
        if first < b"b" < end:
            raise StorageCorrupt("000001.sst offset 1 size 2")
        yield from [key for key in (b"y",) if first <= key < end]

    monkeypatch.setattr(Engine, "keys", broken)
    assert list(engine.keys(META, b"", b"z")) == [b"a", b"y"]
    assert list(engine.keys(META, b"d", b"e")) == []
    assert len(engine.gaps) == 1
    engine.close()


def test_files_come_and_go_beside_a_broker(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed a moment ago may be deleted when it is read."""
    whole = inspection.survey
    gone = [FileNotFoundError("MANIFEST-000005")] * 3

    def looked(*args: Any, **kwargs: Any) -> Any:
        if gone:
            raise gone.pop()
        return whole(*args, **kwargs)

    monkeypatch.setattr(inspection, "survey", looked)
    with pytest.raises(FileNotFoundError):
        list(inspect(path, CONFIG))
    lock = DirectoryLock(path)
    assert list(inspect(path, CONFIG)) == []
    assert not gone
    lock.release()


def test_a_log_that_is_a_link_to_nothing(path: Path) -> None:
    log = largest(path, "*.log")
    log.unlink()
    log.symlink_to(path / "nowhere")
    assert repaired(path) == (MESSAGES // 2, 4)


def test_everything_is_gone(path: Path) -> None:
    """Without the rows that say what the tables are, they are put aside."""
    for file in (*path.glob("*.log"), *path.glob("*.sst")):
        file.unlink()
    assert list(inspect(path, CONFIG))
    repair_directory(path, CONFIG, stamp="1", say=lambda _: None)
    RocksDatabase.open(path, now_us=NOW_US).close()


def test_not_beside_a_broker(path: Path) -> None:
    assert not has_owner(path)
    lock = DirectoryLock(path)
    assert has_owner(path)
    with pytest.raises(StorageLocked):
        repair_directory(path, CONFIG, stamp="1", say=lambda _: None)
    lock.release()
