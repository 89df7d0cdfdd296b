"""Makes a damaged data directory one that a broker starts with, and says what that costs.

Nothing is thrown away: what is cut off, replaced or deleted lies in ``damaged-<time>/`` below the
data directory. In this order:

1. ``CURRENT`` and the manifest: the newest manifest that can be read, else RocksDB makes one from
   the table files;
2. table files that are missing or have another length: the manifest forgets them;
3. the write-ahead logs: RocksDB replays them up to the first damage; the intact batches behind it
   are written again, as far as their tables are known;
4. table files with damaged blocks: their other rows are written anew, and the file is forgotten;
5. rows that do not agree any more (``mend``).

Invariant: a row that could be read is in the database, or in ``damaged-<time>/``, afterwards.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, final

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.files import sync_directory
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.directory import RESTORING_NAME, DirectoryLock
from perdure.storage.rocksdb.engine import ALL_END, META, Engine, Operations, make_manifest
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.manifest import (
    Manifest,
    TableFile,
    current_manifest,
    forget_files,
    read_manifest,
)
from perdure.storage.rocksdb.mend import create_missing_tables, mend
from perdure.storage.rocksdb.skipping import SkippingEngine, file_number
from perdure.storage.rocksdb.store import RocksDatabase
from perdure.storage.rocksdb.survey import Survey, survey
from perdure.storage.rocksdb.synced import FILE_NAME, unusable
from perdure.storage.rocksdb.wal import LogScan, batch_writes, log_batches

_PASSES_MAX: Final = 5
_ROWS_WRITTEN: Final = 1_000
_KEPT_ROWS: Final = "rows.tsv"

Say = Callable[[str], None]


class _Replay(NamedTuple):
    """A log whose batches are written again, from a byte on."""

    file: Path
    from_byte: int


@final
class Repair:
    """One repair; nobody else may have the directory open.

    Args:
        path: the data directory.
        config: sizes.
        stamp: names the directory for what is damaged: ``damaged-<stamp>``.
        say: told each step, one sentence.
    """

    def __init__(self, path: Path, config: RocksdbConfig, *, stamp: str, say: Say) -> None:
        self.path = path
        self.aside = path / f"damaged-{stamp}"
        self._config = config
        self._say = say
        self._replays: list[_Replay] = []
        self._tables: dict[int, str] = {}
        self._identity: dict[bytes, bytes] = {}

    def save(self) -> bool:
        """Save what can be read; returns whether a database is left to ``settle``.

        Raises:
            StorageError: it cannot be done; what was done so far stays.
        """
        found = survey(self.path, verify=True)
        if found.said.files is not None:
            self._tables = dict(found.said.files.tables)
            self._identity = found.said.files.rows
        self.aside.mkdir(mode=0o700, exist_ok=True)
        for file in self.path.iterdir():
            if file.is_symlink() and not file.exists():  # a link to nothing, where RocksDB looks
                file.replace(self.aside / file.name)
                self._say(f"{file.name} is a link to nothing, and is put aside")
        if found.manifest is None or any(
            damage.file in ("CURRENT", found.manifest.name) for damage in found.damages
        ):
            self._mend_manifest(found)
        # What was synced is not all there any more: from here on the files speak for themselves.
        self._move(FILE_NAME)
        found = survey(self.path, verify=True)
        for name in found.unlisted:
            self._move(name)
            self._say(f"{name} is in no manifest, and is put aside")
        if found.manifest is not None:
            self._tables |= found.manifest.tables
            self._forget(found.manifest, found.missing_files)
        self._cut_logs(survey(self.path, verify=True))
        sync_directory(self.path)
        return self._rewrite()

    # -- files -----------------------------------------------------------------------------

    def _mend_manifest(self, found: Survey) -> None:
        current = current_manifest(self.path)
        for file in sorted(self.path.glob("MANIFEST-*"), reverse=True):
            if file == current or read_manifest(file, verify=True).problem:
                continue
            self._keep("CURRENT")
            (self.path / "CURRENT").write_text(f"{file.name}\n", encoding="ascii")
            if not self._is_sound():
                break
            self._say(f"CURRENT names {file.name} again")
            return
        for file in sorted(self.path.glob("*.log")):
            self._replays.append(_Replay(self._move(file.name), 0))
        for name in ("CURRENT", *(file.name for file in self.path.glob("MANIFEST-*"))):
            self._move(name)
        self._say("a new manifest is made from the table files")
        make_manifest(self.path)
        lost = self.path / "lost"
        if lost.is_dir():
            lost.rename(self.aside / "lost")

    def _is_sound(self) -> bool:
        return not any(
            d.file.startswith(("CURRENT", "MANIFEST")) for d in survey(self.path).damages
        )

    def _forget(self, manifest: Manifest, numbers: list[int]) -> None:
        """Let the manifest forget files."""
        given_up: list[TableFile] = [manifest.files[number] for number in numbers]
        if not given_up:
            return
        for table in given_up:
            if (self.path / table.name).exists():
                self._move(table.name)
            self._say(f"{table.name} of table {self._tables.get(table.family)} is given up")
        self._keep(manifest.name)
        forget_files(self.path / manifest.name, given_up)

    def _cut_logs(self, found: Survey) -> None:
        """Leave the logs that follow one another whole; the others are replayed later."""
        reach = 0
        broken = False
        for scan in found.logs:
            gap = bool(scan.first and reach and scan.first != reach + 1)
            if broken or gap:
                broken = True
                self._replays.append(_Replay(self._move(scan.name), 0))
                self._say(f"{scan.name}: its intact batches are written again")
                continue
            reach = scan.last or reach
            if scan.problem:
                broken = True
                self._cut(scan)

    def _cut(self, scan: LogScan) -> None:
        self._keep(scan.name)
        self._say(
            f"{scan.name}: cut at byte {scan.intact_bytes} of {scan.size}; "
            f"{scan.behind_records} intact batches behind it are written again"
        )
        os.truncate(self.path / scan.name, scan.intact_bytes)
        self._replays.append(_Replay(self.aside / scan.name, scan.intact_bytes))

    def _keep(self, name: str) -> None:
        if (self.path / name).exists() and not (self.aside / name).exists():
            shutil.copy2(self.path / name, self.aside / name)

    def _move(self, name: str) -> Path:
        if (self.path / name).exists():
            (self.path / name).replace(self.aside / name)
        return self.aside / name

    # -- rows ------------------------------------------------------------------------------

    def _rewrite(self) -> bool:
        """Write what can be read; returns whether there is a database to go on with."""
        engine = self._open()
        try:
            self._replay(engine)
            self._identify(engine)
            is_ours = engine.get(META, keys.FORMAT) is not None
            wanted = {
                name
                for key in engine.keys(META, b"G", b"H")
                for name in table_names(int.from_bytes(key[1:5]))
            }
            for name in create_missing_tables(engine, wanted):
                self._say(f"table {name} is empty")
            bad = self._unreadable_files(engine)
            engine.sync()
        finally:
            engine.close()
        if not is_ours:
            self._give_up()
            return False
        for _ in range(_PASSES_MAX):
            if not bad:
                return True
            file = current_manifest(self.path)
            assert file is not None
            manifest = read_manifest(file)
            self._forget(manifest, [number for number in bad if number in manifest.files])
            engine = self._open()
            bad = self._unreadable_files(engine)
            engine.close()
        raise StorageCorrupt(f"{self.path} has more damaged tables than can be mended")

    def _open(self) -> SkippingEngine:
        """Open RocksDB, without the files whose own description it cannot read."""
        while True:
            try:
                return SkippingEngine(self.path, self._config)
            except StorageCorrupt as error:
                number = file_number(error.message)
                file = current_manifest(self.path)
                manifest = read_manifest(file) if file is not None else None
                if manifest is not None and number in manifest.files:
                    self._forget(manifest, [number])
                elif not self._replay_all():
                    raise

    def _replay_all(self) -> bool:
        """Leave RocksDB no log: a record may be whole and hold no batch. False = there is none."""
        names = {file.name for file in self.path.glob("*.log")}
        for name in names:
            if (self.aside / name).exists():  # it was cut, and the whole of it is there
                (self.path / name).unlink()
            else:
                self._move(name)
        if names:
            self._say("a log holds what is no batch: what can be read of all is written again")
            names |= {replay.file.name for replay in self._replays}
            self._replays = [_Replay(self.aside / name, 0) for name in sorted(names)]
        return bool(names)

    def _replay(self, engine: Engine) -> None:
        """Write the batches of logs that RocksDB has not replayed."""
        unknown: Counter[int] = Counter()
        for replay in self._replays:
            batches = garbled = 0
            for batch in log_batches(replay.file, from_byte=replay.from_byte):
                operations: Operations = []
                try:
                    writes = list(batch_writes(batch))
                except StorageCorrupt:
                    garbled += 1
                    continue
                for write in writes:
                    name = self._tables.get(write.table)
                    if name is None:
                        unknown[write.table] += 1
                        continue
                    if name not in engine.tables:
                        engine.create_table(name)
                    operations += (name, write.key, write.value)
                if operations:
                    engine.write(operations)
                    batches += 1
            also = f"; {garbled} records are none" if garbled else ""
            self._say(f"{replay.file.name}: {batches} batches written again{also}")
        if unknown:
            self._say(f"{sum(unknown.values())} writes to tables that nobody knows are lost")

    def _identify(self, engine: Engine) -> None:
        """Write the rows anew that say what the tables are, from ``perdure.synced``."""
        operations: Operations = []
        for key, value in self._identity.items():
            dropped = keys.generation_dropped(int.from_bytes(key[1:5]))
            is_of_one = key != keys.FORMAT
            if engine.get(META, key) is None and not (is_of_one and engine.get(META, dropped)):
                operations += (META, key, value)
        if operations:
            engine.write(operations)
            self._say(
                f"{len(operations) // 3} rows that say what the tables are were lost: made anew"
            )

    def _give_up(self) -> None:
        self._say(
            "nothing says what the tables are: all files are put aside, the next start is new"
        )
        for file in sorted(self.path.iterdir()):
            if file.is_file() and not file.name.startswith("perdure.lock"):
                self._move(file.name)

    def _unreadable_files(self, engine: SkippingEngine) -> list[int]:
        """Read everything; what lies beside damage is written anew, and its file can go."""
        for name in sorted(engine.tables):
            for _ in engine.items(name, b"", ALL_END):
                continue
        file = current_manifest(self.path)
        files = read_manifest(file).files if file is not None else {}
        bad = sorted({gap.file_number for gap in engine.gaps} & set(files))
        for number in bad:
            table = files[number]
            name = self._tables.get(table.family, "")
            if name in engine.tables:
                self._write_anew(engine, name, table)
        return bad

    def _write_anew(self, engine: Engine, name: str, table: TableFile) -> None:
        first, end = table.smallest, table.largest + b"\0"
        rows: Operations = []
        for key, value in engine.items(name, first, end):
            rows += (name, key, value)
        self._say(f"{table.name}: {len(rows) // 3} rows of table {name} are written anew")
        engine.replace_range(name, first, end, rows[: 3 * _ROWS_WRITTEN])
        for at in range(3 * _ROWS_WRITTEN, len(rows), 3 * _ROWS_WRITTEN):
            engine.write(rows[at : at + 3 * _ROWS_WRITTEN])

    def settle(self) -> None:
        """Make the rows agree with one another."""
        with (self.aside / _KEPT_ROWS).open("w", encoding="ascii") as kept:

            def keep(table: str, key: bytes, value: bytes) -> None:
                kept.write(f"{table}\t{key.hex()}\t{value.hex()}\n")

            for _ in range(_PASSES_MAX):
                changed, left = self._agree_once(keep)
                if changed:
                    self._say(f"{changed} rows that did not agree any more were settled")
                if not left:
                    return
        self._say(f"{left} findings are left; the broker starts with them")

    def _agree_once(self, keep: Callable[[str, bytes, bytes], None]) -> tuple[int, int]:
        changed = 0
        for finding in (True, False):
            database = RocksDatabase.open(self.path, config=self._config, engine=SkippingEngine)
            try:
                if not finding:
                    return changed, sum(1 for _ in database.check())
                if next(iter(database.check()), None) is None:
                    return 0, 0
                engine, generations = database.tables()
                changed = mend(engine, generations, database.marks, keep)
            finally:
                database.close()
        raise AssertionError


def repair_directory(path: Path, config: RocksdbConfig, *, stamp: str, say: Say) -> Path:
    """Repair a data directory; see ``Repair``.

    Returns:
        Where what was damaged is.

    Raises:
        StorageLocked: a broker runs there.
        StorageError: it cannot be repaired, or a restore was not finished.
    """
    if (path / RESTORING_NAME).exists():
        raise survey(path).error()
    lock = DirectoryLock(path)
    try:
        repair = Repair(path, config, stamp=stamp, say=say)
        ours = repair.save()
    except OSError as error:
        raise unusable(path, error) from error
    finally:
        lock.release()
    if ours:
        repair.settle()
    return repair.aside
