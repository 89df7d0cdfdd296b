"""A view that is kept shows what a new one would, for less; and lets go of what is gone."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageUnavailable
from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase, following
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.following import Follower
from tests.support.staged import Staged

START = 1_700_000_000_000_000
CONFIG = RocksdbConfig(learn_thresholds=(4, 2), tail_messages=0)


class Log:
    """A broker's side of a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = START
        self.database = RocksDatabase.open(path, config=CONFIG, now_us=START)

    def put(self, count: int = 1, size: int = 8) -> None:
        batch = Staged(self.database)
        for _ in range(count):
            self.now += 1_000
            topic = f"a/{self.now // 1_000 % 7}/b"
            batch.append(Message(topic, b"x" * size, 1, publisher="p"), self.now)
        batch.write()

    def flush(self) -> None:
        engine = self.database.tables()[0]
        for table in sorted(engine.tables):
            engine._tables[table].flush(True)

    def rotate(self) -> None:
        self.now += 1_000
        self.database.rotate(self.now)

    def drop(self) -> None:
        generations = self.database.generations()
        if len(generations) > 1:
            self.database.drop_generation(generations[0].generation)

    def restart(self) -> None:
        self.database.close()
        self.database = RocksDatabase.open(self.path, config=CONFIG)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "db")
    yield made
    made.database.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A view that was opened, each."""
    found: list[Path] = []

    def counting(path: Path, **options: Any) -> LogFiles:
        found.append(path)
        return LogFiles(path, **options)

    monkeypatch.setattr(following, "LogFiles", counting)
    return found


def content(files: LogFiles) -> Any:
    newest = files.newest()
    until = newest.offset if newest else 0
    slices = files.slices((), 0, until, rows_max=50)
    rows = [
        (part.generation, key, value)
        for part in slices
        for page in files.pages((), part, rows_max=64)
        for key, value in page.rows()
    ]
    generations = [
        (each.generation, each.since_offset, each.until_offset, each.message_count)
        for each in files.generations()
    ]
    patterns = [files.patterns(each.generation) for each in files.generations()]
    return files.database_id, newest, generations, patterns, slices, rows


def fresh(path: Path) -> Any:
    files = LogFiles(path)
    try:
        return content(files)
    finally:
        files.close()


@pytest.mark.parametrize("seed", range(4))
def test_it_shows_what_a_new_view_shows(log: Log, seed: int, opened: list[Path]) -> None:
    chance = random.Random(seed)
    follower = Follower(log.path)
    steps: list[Callable[[], None]] = [log.flush, log.rotate, log.drop, log.restart]
    looks = 0
    for _ in range(40):
        if chance.random() < 0.2:
            chance.choice(steps)()
        else:
            log.put(chance.choice([1, 5, 700]), size=chance.choice([8, 300]))
        if chance.random() < 0.7:
            looks += 1
            with follower.look() as files:
                assert content(files) == fresh(log.path)
    follower.close()
    assert len(opened) < looks


def test_messages_and_flushes_are_followed_and_generations_opened(
    log: Log, opened: list[Path]
) -> None:
    follower = Follower(log.path)
    for flushes in (False, False, True, False):
        if flushes:
            log.flush()
        log.put()
        with follower.look() as files:
            assert content(files) == fresh(log.path)
    assert len(opened) == 1
    for number, step in enumerate((log.rotate, log.drop, log.restart), 2):
        step()
        log.put()
        with follower.look() as files:
            assert content(files) == fresh(log.path)
        assert len(opened) == number
    follower.close()


def test_a_value_that_was_flushed_and_not_written_again_is_seen(
    log: Log, opened: list[Path]
) -> None:
    """In memory the view has the value of before, which would hide the one in the file."""
    follower = Follower(log.path)
    log.put()
    with follower.look():
        pass
    log.put()
    log.flush()
    for _ in range(2):
        with follower.look() as files:
            assert content(files) == fresh(log.path)
    assert len(opened) == 2
    follower.close()


def test_nothing_is_read_where_nothing_was_written(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put()
    follower = Follower(log.path)
    with follower.look() as files:
        first = content(files)
    monkeypatch.setattr(Engine, "catch_up", lambda _: pytest.fail("it reads"))
    with follower.look() as files:
        assert content(files) == first
    follower.close()


def test_what_is_flushed_while_it_follows_leaves_no_hole(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in none of the files that were read."""
    follower = Follower(log.path)
    log.put()
    with follower.look():
        pass
    catch_up = Engine.catch_up
    caught: list[int] = []

    def flushing(engine: Engine) -> None:
        catch_up(engine)
        if not caught:
            log.put(10)
            log.flush()
            log.put()
        caught.append(1)

    monkeypatch.setattr(Engine, "catch_up", flushing)
    log.put()
    with follower.look() as files:
        assert content(files) == fresh(log.path)
    assert len(caught) == 2
    follower.close()


def test_a_view_that_cannot_follow_is_opened_anew(
    log: Log, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(log.path)
    with follower.look():
        pass

    def failing(_: Engine) -> None:
        raise StorageUnavailable("a file has gone")

    monkeypatch.setattr(Engine, "catch_up", failing)
    log.put()
    with follower.look() as files:
        assert content(files) == fresh(log.path)
    assert len(opened) == 2

    def flushing(_: Engine) -> None:
        log.put()
        log.flush()
        log.put()

    monkeypatch.setattr(Engine, "catch_up", flushing)
    log.put()
    with follower.look() as files:
        assert content(files) == fresh(log.path)
    assert len(opened) == 3
    follower.close()


def test_another_database_in_its_place(log: Log) -> None:
    follower = Follower(log.path)
    log.put()
    with follower.look() as files:
        first = files.database_id
    log.database.close()
    shutil.rmtree(log.path)
    log.database = RocksDatabase.open(log.path, config=CONFIG, now_us=START)
    log.put()
    with follower.look() as files:
        assert files.database_id != first
        assert content(files) == fresh(log.path)
    follower.close()


def test_a_view_that_is_behind_is_refused(log: Log) -> None:
    log.put()
    follower = Follower(log.path)
    with follower.look() as files:
        sequence = files.sequence
    with follower.look(sequence=sequence):
        pass
    with (
        pytest.raises(StorageUnavailable, match="has less than when"),
        follower.look(sequence=sequence + 1),
    ):
        pass
    follower.close()


def test_it_is_let_go_when_nobody_looks(
    log: Log, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Any] = []

    class Timer:
        def __init__(self, after_s: float, call: Callable[[], None]) -> None:
            self.after_s, self.call, self.cancelled = after_s, call, False
            timers.append(self)

        def start(self) -> None:
            pass

        def cancel(self) -> None:
            self.cancelled = True

    monkeypatch.setattr(threading, "Timer", Timer)
    follower = Follower(log.path, kept_s=7.5)
    for _ in range(2):
        with follower.look():
            assert all(timer.cancelled for timer in timers)
    assert [(timer.after_s, timer.cancelled) for timer in timers] == [(7.5, True), (7.5, False)]
    timers[-1].call()
    assert not _held(log.path)
    with follower.look():
        assert len(opened) == 2
        assert _held(log.path)
    follower.close()
    assert timers[-1].cancelled


def test_files_that_are_gone_are_let_go_at_the_next_look(log: Log) -> None:
    follower = Follower(log.path)
    for _ in range(3):
        log.put(2_000)
        log.flush()
    with follower.look() as files:
        content(files)
    log.rotate()
    log.drop()
    gone = {name for name in _held(log.path) if "deleted" in name}
    assert gone
    with follower.look():
        pass
    # Not those that the broker has merged since this look.
    assert not gone & set(_held(log.path))
    follower.close()


def _held(path: Path) -> list[str]:
    """Table files that this process has open to read beside the broker's own."""
    names = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as that of the listing is
            names.append(str(each.readlink()))
    inside = [name for name in names if name.startswith(str(path))]
    return [name for name in inside if "MANIFEST" in name or "deleted" in name][1:]


def test_a_look_that_nobody_ended(
    log: Log, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_BUSY_S", 0.0)
    follower = Follower(log.path)
    log.put()
    with follower.look() as one:
        log.put()
        with follower.look() as other:
            assert content(other) == fresh(log.path)
        assert content(one) != fresh(log.path)
    with follower.look() as files:
        assert content(files) == fresh(log.path)
    assert len(opened) == 2
    follower.close()


def test_waiting_ends_with_a_write_or_after_a_time(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(100))
    slept: list[float] = []
    monkeypatch.setattr(following, "time", Clock(times, slept, log))
    follower = Follower(log.path)
    follower.wait(50)
    assert not slept
    with follower.look():
        pass
    follower.wait(5)
    assert len(slept) == 4
    slept.clear()
    Clock.writes_after = 2
    follower.wait(50)
    assert len(slept) == 2
    follower.close()


class Clock:
    """Time that passes with each look at it."""

    writes_after = 0

    def __init__(self, times: Iterator[int], slept: list[float], log: Log) -> None:
        self._times, self._slept, self._log = times, slept, log

    def monotonic(self) -> float:
        return next(self._times)

    def sleep(self, seconds: float) -> None:
        self._slept.append(seconds)
        if len(self._slept) == Clock.writes_after:
            self._log.put()
