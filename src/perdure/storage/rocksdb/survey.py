"""Looks at the files of a data directory before RocksDB does, and changes none of them.

RocksDB opens what is left of a database: it drops what follows a record that it cannot read, and
does not miss a write-ahead log that is gone. Here it is seen whether everything is there: the
tables of the manifest, its logs, their writes without a hole, and as far as ``perdure.synced`` says
that they reached.

What a power cut leaves is told from damage by that file: a cut end, or zeros, behind everything
that was synced. If only the last sync is torn, the disk had promised more than it kept; a start
says so and goes on. Everything else is damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, final

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb.directory import RESTORING_NAME
from perdure.storage.rocksdb.frames import CUT, ZEROS
from perdure.storage.rocksdb.manifest import Manifest, current_manifest, read_manifest
from perdure.storage.rocksdb.status import REPAIR_HINT
from perdure.storage.rocksdb.synced import Said, read_synced
from perdure.storage.rocksdb.wal import HOLE, LogScan, scan_log

CURRENT: Final = "CURRENT"
RESTORE_HINT: Final = "run perdure restore again: it begins anew; or empty the directory"


class Damage(NamedTuple):
    """One damaged or missing file.

    Attributes:
        file: its name.
        problem: what is wrong and what it may cost, one sentence.
    """

    file: str
    problem: str


class Torn(NamedTuple):
    """An end of the logs that a power cut has torn.

    Attributes:
        file: name of the log.
        keep_bytes: where it is whole.
        dropped_bytes: behind that, and in the logs after it.
        dropped_writes: intact writes among them.
        later: names of logs after it.
        was_synced: a sync had covered some of it: the disk did not keep its promise.
        missing_writes: that a sync had covered.
    """

    file: str
    keep_bytes: int
    dropped_bytes: int
    dropped_writes: int
    later: tuple[str, ...]
    was_synced: bool
    missing_writes: int = 0


@final
class Survey:
    """What is in a directory.

    Attributes:
        path: the directory.
        is_new: no database is in it, or one that was just being made.
        said: what ``perdure.synced`` says.
        manifest: what RocksDB's manifest says; None = there is none.
        damages: what is wrong.
        torn: what a power cut has left; None = nothing.
        logs: the logs that RocksDB will replay, oldest first.
        missing_files: numbers of tables that are not there, or not as long as they were.
        unlisted: names of table files that the manifest does not list; RocksDB deletes them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_new = False
        self.said = Said(None, None)
        self.manifest: Manifest | None = None
        self.damages: list[Damage] = []
        self.torn: Torn | None = None
        self.logs: list[LogScan] = []
        self.missing_files: list[int] = []
        self.unlisted: list[str] = []
        self._lacks_logs = False
        self._names: set[str] = set()

    @property
    def is_garbled(self) -> bool:
        """The list of the tables breaks off at something that RocksDB did not write."""
        problem = "" if self.manifest is None else self.manifest.problem
        return bool(problem) and not problem.endswith((CUT, ZEROS))

    def error(self) -> StorageCorrupt:
        """What stops a start."""
        first, *others = self.damages
        if first.file == RESTORING_NAME:
            return StorageCorrupt(f"{self.path}: {first.problem}", hint=RESTORE_HINT)
        more = f" (and {len(others)} more)" if others else ""
        return StorageCorrupt(
            f"{self.path} is damaged: {first.file}: {first.problem}{more}", hint=REPAIR_HINT
        )

    # -- looking ---------------------------------------------------------------------------

    def look(self, *, verify: bool) -> None:
        """Look at everything but the contents of tables.

        Args:
            verify: all checksums of the manifest and the logs; else those where something is
                wrong, because RocksDB verifies the others.
        """
        # First: a broker that is running may only get further meanwhile.
        self.said = read_synced(self.path)
        names = {file.name for file in self.path.iterdir()} if self.path.is_dir() else set()
        self._names = names
        files = {name for name in names if _is_rocksdb(name)}
        claim = self.said.claim
        if RESTORING_NAME in names:
            problem = "a restore was begun here and not finished"
            self.damages.append(Damage(RESTORING_NAME, problem))
            return
        if not files or (claim is not None and not claim.sequence):
            self.is_new = True
            return
        if not self._look_at_manifest(names, verify=verify):
            return
        assert self.manifest is not None
        listed = {file.name for file in self.manifest.files.values()}
        self.unlisted = sorted(n for n in names - listed if _is_numbered(n, ".sst"))
        self._look_at_tables()
        self._look_at_logs(sorted(int(n[:-4]) for n in names if _is_numbered(n, ".log")), verify)
        if self.unlisted and self._lacks_logs:
            # A flush that was cut off leaves such a table, too, but its logs with it.
            problem = (
                f"it may have lost its end: it does not list {', '.join(self.unlisted[:5])}"
                + (f" and {len(self.unlisted) - 5} more" if len(self.unlisted) > 5 else "")
                + ", and there are no logs of what they may hold"
            )
            self.damages.insert(0, Damage(self.manifest.name, problem))
        if any(damage.file in (CURRENT, self.manifest.name) for damage in self.damages):
            self._doubt_what_is_gone()

    def _doubt_what_is_gone(self) -> None:
        """A list of tables that is older than the files also lists what was merged or written to
        tables since: how much of it is lost nobody knows."""
        gone = [each.file for each in self.damages if each.file not in self._names]
        if gone:
            self.damages = [each for each in self.damages if each.file in self._names]
            others = f", nor are {len(gone) - 1} others" if len(gone) > 1 else ""
            problem = f"it is not there{others}: merged since the list was written, or missing"
            self.damages.append(Damage(gone[0], problem))

    def _look_at_manifest(self, names: set[str], *, verify: bool) -> bool:
        file = current_manifest(self.path)
        if file is None:
            others = sorted(name for name in names if name.startswith("MANIFEST-"))
            if CURRENT not in names:
                problem = "it is missing, and says which MANIFEST file lists the tables"
                self.damages.append(Damage(CURRENT, problem))
            elif others:
                self.damages.append(Damage(CURRENT, "it names no MANIFEST that is there"))
            else:
                problem = "it is missing, and lists the tables and where the logs begin"
                self.damages.append(Damage("MANIFEST", problem))
            return False
        manifest = read_manifest(file, verify=verify)
        self.manifest = manifest
        known = self.said.files
        # RocksDB takes an edit that was not written whole for one that was never begun.
        if self.is_garbled:
            self.damages.append(Damage(file.name, f"{manifest.problem}; it lists the tables"))
            return False
        if known is not None and known.manifest:
            if _number(known.manifest) > _number(file.name):
                problem = f"it names {file.name}, but {known.manifest} was in use"
                self.damages.append(Damage(CURRENT, problem))
            elif known.manifest == file.name and manifest.size < known.manifest_bytes:
                problem = f"it has {manifest.size} bytes, and had {known.manifest_bytes}"
                self.damages.append(Damage(file.name, problem))
            elif known.manifest == file.name and (
                known.tables.keys() - manifest.tables.keys() - manifest.dropped
            ):
                self.damages.append(Damage(file.name, "it does not list tables that were there"))
        return True

    def _look_at_tables(self) -> None:
        assert self.manifest is not None
        for number, table in sorted(self.manifest.files.items()):
            try:
                size = (self.path / table.name).stat().st_size
            except FileNotFoundError:
                size = -1
            if size == table.size:
                continue
            self.missing_files.append(number)
            state = "it is missing" if size < 0 else f"it has {size} bytes instead of {table.size}"
            name = self.manifest.tables.get(table.family, "?")
            self.damages.append(Damage(table.name, f"{state}; {table.holds(name)}"))

    # -- the logs --------------------------------------------------------------------------

    def _look_at_logs(self, numbers: list[int], verify: bool) -> None:
        assert self.manifest is not None
        first_log = self.manifest.first_log
        live = []
        for number in numbers:
            if number < first_log:
                continue
            try:
                self.logs.append(scan_log(self.path / f"{number:06}.log", verify=verify))
            except FileNotFoundError:
                continue  # a broker has deleted it meanwhile, or it is a link to nothing
            live.append(number)
        known = dict(self.said.files.logs) if self.said.files is not None else {}
        for number, size in sorted(known.items()):
            if number >= first_log and number not in live and size:
                count = self._writes_of(number)
                problem = f"it is missing, and had {size} bytes or more; {count} writes are lost"
                self._lacks_logs = True
                self.damages.append(Damage(f"{number:06}.log", problem))
        for scan in self.logs:
            had = known.get(scan.number, 0)
            if scan.size < had and (scan is not self.logs[-1] or not scan.first):
                problem = f"it has {scan.size} bytes, and had {had}"
                self.damages.append(Damage(scan.name, problem))
        if not live and self.said.claim is None:
            # RocksDB always has one, and nothing else says what it held.
            problem = "it is missing, with all other logs: recent messages and sessions are lost"
            self._lacks_logs = True
            self.damages.append(Damage(f"{first_log:06}.log", problem))
        if not self.damages:
            self._follow_logs(first_log)

    def _writes_of(self, number: int) -> int:
        """How many writes a log that is not there held, with those that are missing beside it."""
        assert self.manifest is not None
        before = [scan.last for scan in self.logs if scan.number < number and scan.last]
        after = [scan.first for scan in self.logs if scan.number > number and scan.first]
        claim = self.said.claim
        end = min(after) - 1 if after else claim.sequence if claim is not None else 0
        return max(0, end - (max(before) if before else self.manifest.last_sequence))

    def _follow_logs(self, first_log: int) -> None:
        """Whether the writes of the logs follow one another, up to what was synced."""
        assert self.manifest is not None
        reach = 0
        for index, scan in enumerate(self.logs):
            if scan.first:
                due = reach + 1 if reach else min(scan.first, self.manifest.last_sequence + 1)
                if scan.first != due:
                    self._lacks_logs = not reach
                    self.damages.append(Damage(scan.name, _gap(due, scan.first)))
                    return
                reach = scan.last
            if scan.problem:
                self._judge(scan, self.logs[index + 1 :], reach or self.manifest.last_sequence)
                return
        reach = reach or self.manifest.last_sequence
        claim = self.said.claim
        if claim is None or reach >= claim.sequence:
            return
        newest = self.logs[-1] if self.logs else None
        if newest is not None and reach >= claim.previous:
            missing = claim.sequence - reach
            self.torn = Torn(newest.name, newest.size, 0, 0, (), True, missing)
            return
        name = newest.name if newest is not None else f"{first_log:06}.log"
        where = f"after byte {newest.size}" if newest is not None else "it is missing"
        self._lacks_logs = True
        self.damages.append(
            Damage(name, f"{where}: {claim.sequence - reach} writes that were synced are missing")
        )

    def _judge(self, scan: LogScan, later: list[LogScan], reach: int) -> None:
        """Whether what is wrong in a log is the end that a power cut leaves."""
        claim = self.said.claim
        behind = scan.behind_writes + sum(
            (each.last - each.first + 1 if each.first else 0) + each.behind_writes for each in later
        )
        is_cut = scan.problem in (CUT, ZEROS)
        is_covered = claim is None or reach >= claim.sequence
        if behind:
            # Pages reach the disk in any order: one that did not is zeros.
            is_end = is_covered and claim is not None and (is_cut or scan.zeros)
        else:
            is_end = is_covered or (is_cut and claim is not None and reach >= claim.previous)
        if is_end:
            dropped = scan.size - scan.intact_bytes + sum(each.size for each in later)
            names = tuple(each.name for each in later)
            missing = 0 if claim is None else max(0, claim.sequence - reach)
            self.torn = Torn(
                scan.name, scan.intact_bytes, dropped, behind, names, not is_covered, missing
            )
            return
        newest = max([scan.behind_last, reach, *[max(e.last, e.behind_last) for e in later]])
        if claim is not None:
            newest = max(newest, claim.sequence)
        end = scan.behind_at or scan.size
        self.damages.append(
            Damage(
                scan.name,
                f"bytes {scan.intact_bytes} to {end}: {scan.problem}; "
                f"{newest - reach} writes from there on are in doubt"
                + (f", {behind} of them are whole behind it" if behind else ""),
            )
        )


def survey(path: Path, *, verify: bool = False) -> Survey:
    """Look at the files of a directory; see ``Survey.look``.

    Raises:
        OSError: some cannot be read.
    """
    found = Survey(path)
    found.look(verify=verify)
    return found


def _gap(due: int, found: int) -> str:
    if found < due:
        return f"{HOLE}: it begins with write {found}, and {due} was due: two logs were exchanged"
    return f"a log before it is missing: {found - due} writes, from {due} on"


def _is_numbered(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and name[: -len(suffix)].isdecimal()


def _is_rocksdb(name: str) -> bool:
    """Whether a file is of the kind that holds a database."""
    return (
        name == CURRENT
        or name.startswith("MANIFEST-")
        or _is_numbered(name, ".sst")
        or _is_numbered(name, ".log")
    )


def _number(manifest: str) -> int:
    number = manifest.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
