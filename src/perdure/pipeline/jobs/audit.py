"""Proves that nothing acknowledged is missing, repeated or out of order, from what is on disk.

One view of the database is read: the log from its beginning (and what an archive has of it before
that), then sessions, private streams and retained messages. What is looked at:

=============  ============================================================================
kind           what is wrong
=============  ============================================================================
record         a row does not decode, has no owner, an index entry or a counter is wrong
offset         two messages have one offset, or one is from a time after its offset
missing        the ledger has it as acknowledged, the log has not
repeated       a QoS 2 message is there twice
order          a later message of the same publisher on the same topic came first
cursor         a session has settled or been sent what it is not owed
session        an identifier or a subscription that cannot be
retained       a retained message is older than one that the log has with RETAIN
=============  ============================================================================

*missing*, *repeated* and *order* need messages that say who sent them and which number they have:
a **stamp**. It is text, ``publisher number ...``, or a number in a field of a JSON payload; then
the client is the publisher. Numbers count from 1 for each publisher and topic. Knows no Spark.

Invariant: a healthy database has no findings, whenever the view was taken, also while a broker
writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

import msgspec
import numpy as np

from perdure.errors import ConfigError
from perdure.pipeline import history
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.history import AnyPart
from perdure.pipeline.jobs.audit_sessions import audit_retained, audit_sessions
from perdure.pipeline.log_source import Part, scan
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.protocol import RowQuery
from perdure.storage.rocksdb.bulk import LogFiles

EXAMPLES_MAX: Final = 100
"""Findings of one kind that are told; the rest is counted."""

COLUMNS: Final = ("topic", "offset", "published_at", "qos", "retain")
STAMPED: Final = ("client_id", "payload")
_QOS_2: Final = 2


class Problem(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        kind: as in the table.
        subject: topic, client or row.
        detail: what is wrong, as a sentence.
    """

    kind: str
    subject: str
    detail: str


class Audit(msgspec.Struct, frozen=True):
    """The result.

    Attributes:
        messages: that were read.
        stamped: of them with a stamp.
        acknowledged: in the ledger.
        older: of them older than the log and its archive.
        sessions: that were looked at.
        found: findings of each kind.
        problems: some of each kind.
    """

    messages: int
    stamped: int
    acknowledged: int
    older: int
    sessions: int
    found: dict[str, int]
    problems: tuple[Problem, ...]


class LedgerLine(msgspec.Struct, frozen=True):
    """A line of a ledger: a message whose acknowledgement a publisher has seen.

    Attributes:
        topic: topic name.
        publisher: as in the stamp, or the client id.
        number: of the stamp.
        at_us: when it was acknowledged, or before; 0 = not known.
    """

    topic: str
    publisher: str
    number: int
    at_us: int = 0


Stamp = Callable[[str, bytes], tuple[str, int] | None]
"""Publisher and number of a client's payload; None = it has no stamp."""


@final
class Findings:
    """Counts problems, and keeps some of each kind.

    Args:
        counts, problems: of an audit that is gone on with.
    """

    def __init__(
        self, counts: Mapping[str, int] | None = None, problems: Iterable[Problem] = ()
    ) -> None:
        self.counts: Counter[str] = Counter(counts or {})
        self.problems: list[Problem] = list(problems)

    def add(self, kind: str, subject: str, detail: str) -> None:
        """Take one."""
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES_MAX:
            self.problems.append(Problem(kind, subject, detail))


def audit(
    options: ReadOptions,
    *,
    stamp: Stamp | None = None,
    ledger: Iterable[LedgerLine] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Audit the database in a directory.

    Args:
        options: directory, and what of the log is read; with ``catalog`` an archive too.
        stamp: how payloads are numbered; None = they are not.
        ledger: what was acknowledged.
        progress: called with the parts of the log that were read, and how many there are.
    """
    files = LogFiles(Path(options.path))
    try:
        found = Findings()
        for finding in files.database.check():
            found.add("record", f"{finding.table} {finding.key}".strip(), finding.problem)
        flows = Flows(found)
        rows = _LogAudit(found, flows, stamp)
        parts = history.plan(files, options, Narrowing())
        for done, part in enumerate(parts):
            progress(done, len(parts))
            rows.take(_batches(files, part, rows.columns))
        progress(len(parts), len(parts))
        begin = 0 if options.catalog else files.generations()[0].since_offset
        acknowledged, older = flows.compare(ledger, begin=begin)
        with asyncio.Runner() as runner:
            sessions = runner.run(audit_sessions(files.database, found.add))
            runner.run(audit_retained(files.database, rows.retained, found.add))
    finally:
        files.close()
    return Audit(
        rows.messages,
        rows.stamped,
        acknowledged,
        older,
        sessions,
        dict(found.counts),
        tuple(found.problems),
    )


def _batches(files: LogFiles, part: AnyPart, columns: list[str]) -> Iterator[Any]:
    """The rows of a part, from the one view that is audited."""
    if not isinstance(part, Part):
        return history.read(part, columns)
    query = RowQuery(
        view=part.query,
        database_id=part.database_id,
        slices=part.slices,
        filter_sets=part.filter_sets,
        columns=tuple(columns),
        published_from=None,
        published_until=None,
        where=part.where,
        compression="",
    )
    return (batch for _, batch in scan(files, query))


@final
class _LogAudit:
    """What the log is looked at for, part by part in its order."""

    def __init__(self, found: Findings, flows: Flows, stamp: Stamp | None) -> None:
        self._found = found
        self._flows = flows
        self._stamp = stamp
        self.columns = [*COLUMNS, *(STAMPED if stamp else ())]
        self.messages = self.stamped = 0
        self.retained: dict[str, int] = {}

    def take(self, batches: Iterable[Any]) -> None:
        """Look at the rows of a part; no offset of it is in another one."""
        parts: list[Any] = []
        for batch in batches:
            self.messages += batch.num_rows
            offsets: Any = batch.column("offset").to_numpy()
            parts.append(offsets)
            self._times(batch, offsets)
            self._retain(batch)
            if self._stamp is not None:
                self._stamps(batch)
        if parts:
            known, counts = np.unique(np.concatenate(parts), return_counts=True)
            for offset in known[counts > 1].tolist():
                self._found.add("offset", str(offset), "more than one message has this offset")

    def _times(self, batch: Any, offsets: Any) -> None:
        published: Any = batch.column("published_at").cast("int64").to_numpy()
        for row in np.flatnonzero(published > offsets).tolist():
            self._found.add(
                "offset",
                batch.column("topic")[row].as_py(),
                f"the message at offset {offsets[row]} is from a time after it",
            )

    def _retain(self, batch: Any) -> None:
        flagged = batch.filter(batch.column("retain"))
        topics, offsets = flagged.column("topic").to_pylist(), flagged.column("offset").to_pylist()
        for topic, offset in zip(topics, offsets, strict=True):
            self.retained[topic] = max(self.retained.get(topic, 0), offset)

    def _stamps(self, batch: Any) -> None:
        assert self._stamp is not None
        rows = zip(
            *(batch.column(name).to_pylist() for name in ("topic", "client_id", "payload", "qos")),
            strict=True,
        )
        for topic, client, payload, qos in rows:
            found = self._stamp(client, payload)
            if found is not None:
                self.stamped += 1
                self._flows.take(found[0], topic, found[1], qos)


@final
class _Flow:
    """Numbers of one publisher on one topic; few that are not in one row, so few in memory."""

    __slots__ = ("beyond", "first", "highest", "through")

    def __init__(self, first: int) -> None:
        self.first = self.highest = first
        self.through = first
        self.beyond: set[int] = set()

    def has(self, number: int) -> bool:
        """Whether a number was seen."""
        return self.first <= number <= self.through or number in self.beyond

    def add(self, number: int) -> None:
        """A number that was not seen before."""
        self.highest = max(self.highest, number)
        self.beyond.add(number)
        while self.through + 1 in self.beyond:
            self.through += 1
            self.beyond.remove(self.through)


@final
class Flows:
    """What was published by whom on which topic, as the log has it."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._flows: dict[tuple[str, str], _Flow] = {}

    def take(self, publisher: str, topic: str, number: int, qos: int) -> None:
        """The next message of the log."""
        flow = self._flows.get((publisher, topic))
        if flow is None:
            self._flows[publisher, topic] = _Flow(number)
            return
        if flow.has(number):
            # At QoS 1 a publisher may have sent it again, and the broker must take it again.
            if qos == _QOS_2:
                self._found.add("repeated", topic, f"number {number} of {publisher} is there twice")
            return
        if number < flow.highest:
            self._found.add(
                "order", topic, f"number {number} of {publisher} comes after {flow.highest}"
            )
        flow.add(number)

    def compare(self, ledger: Iterable[LedgerLine], *, begin: int) -> tuple[int, int]:
        """Look for what was acknowledged.

        Args:
            ledger: its lines.
            begin: the log begins at this offset; 1 or less = with its first message.

        Returns:
            How many there are, and how many of those are older than the log.
        """
        count = older = 0
        for line in ledger:
            count += 1
            flow = self._flows.get((line.publisher, line.topic))
            if flow is not None and flow.has(line.number):
                continue
            if begin > 1 and _is_older(line, flow, begin):
                older += 1
                continue
            self._found.add(
                "missing", line.topic, f"number {line.number} of {line.publisher} was acknowledged"
            )
        return count, older


def _is_older(line: LedgerLine, flow: _Flow | None, begin: int) -> bool:
    """Whether retention may have dropped what a line tells of."""
    if line.at_us:
        return line.at_us < begin
    return flow is None or line.number < flow.first


# -- stamps --------------------------------------------------------------------------------


def text_stamp(_client: str, payload: bytes) -> tuple[str, int] | None:
    """``publisher number ...``"""
    parts = payload.split(b" ", 2)
    if len(parts) < 2 or not parts[1].isdigit():
        return None
    try:
        return parts[0].decode(), int(parts[1])
    except UnicodeDecodeError:
        return None


def json_stamp(field: str) -> Stamp:
    """The number in a field of a JSON object."""
    decoder = msgspec.json.Decoder()

    def stamp(client: str, payload: bytes) -> tuple[str, int] | None:
        try:
            value = decoder.decode(payload)
        except (ValueError, RecursionError):
            return None
        number = value.get(field) if type(value) is dict else None
        return (client, number) if type(number) is int else None

    return stamp


def read_ledger(path: Path) -> Iterator[LedgerLine]:
    """The lines of a ledger: JSON objects.

    Raises:
        ConfigError: a line is none.
    """
    decoder = msgspec.json.Decoder(LedgerLine)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield decoder.decode(line)
            except ValueError as error:
                raise ConfigError(
                    f"{path}, line {number}: {error}",
                    path="ledger",
                    hint='expected {"topic": "a", "publisher": "p", "number": 1}',
                ) from error
