"""An audit finds a planted fault of each kind, and nothing in a healthy database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.codec import encode_message
from perdure.storage.rocksdb import RocksDatabase, keys
from perdure.storage.rocksdb.engine import STATE, Engine
from perdure.storage.rocksdb.layout import table_names
from tests.support.staged import Staged, take_offset
from tests.unit.pipeline.logs import SECOND, START, append

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

from perdure.errors import ConfigError
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.jobs.audit import (
    EXAMPLES_MAX,
    Audit,
    LedgerLine,
    audit,
    json_stamp,
    read_ledger,
    text_stamp,
)
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.sinks.opening import open_sink

pytestmark = pytest.mark.filterwarnings("default")

TOPICS = [f"d/{n % 6}/t" for n in range(30)]
MESSAGES, INDEX = table_names(1)
ALL = b"\xff" * 64


def result(path: Path, **others: Any) -> Audit:
    return audit(ReadOptions(str(path / "db"), rows_per_partition=10), **others)


def details(found: Audit) -> list[tuple[str, str]]:
    assert sum(found.found.values()) == len(found.problems)
    return [(each.kind, each.detail) for each in found.problems]


def stamped(
    database: RocksDatabase, numbers: Sequence[int], *, at: int = START, qos: int = 1
) -> list[Message]:
    """Messages of one publisher on one topic."""
    batch = Staged(database)
    messages = []
    for place, number in enumerate(numbers):
        now = at + place * 1_000
        message = Message(
            "d/1/t", b"pump %d 0 ..." % number, qos, publisher="c", published_at_us=now
        )
        batch.append(message, now)
        messages.append(message)
    batch.write()
    return messages


def ledger(numbers: Sequence[int], **others: Any) -> list[LedgerLine]:
    return [LedgerLine("d/1/t", "pump", number, **others) for number in numbers]


def session(
    database: RocksDatabase,
    cursor: Cursor,
    *,
    subscriptions: Sequence[Subscription] = (Subscription("d/+/t", qos=1),),
    entries: Sequence[InboxEntry] = (),
    awaiting: Sequence[int] = (),
) -> None:
    batch = Staged(database)
    batch.put_session(SessionRecord("s", 1, START, 3_600, connected=False, changed_at_us=START))
    batch.put_cursor("s", cursor, epoch=1)
    for subscription in subscriptions:
        batch.put_subscription("s", subscription, epoch=1)
    for entry in entries:
        batch.put_inbox("s", entry, epoch=1)
    for packet_id in awaiting:
        batch.put_awaiting_release("s", packet_id, epoch=1)
    batch.write()


def edit(path: Path, database: RocksDatabase, change: Callable[[Engine], list[Any]]) -> None:
    """Change rows of a database behind its back."""
    database.close()
    engine = Engine(path / "db", RocksdbConfig())
    engine.write(change(engine))
    engine.close()


def test_a_healthy_database_has_no_findings(database: RocksDatabase, tmp_path: Path) -> None:
    written = append(database, [*TOPICS, "$SYS/x", "d"], at=START)
    stamped(database, [1, 2, 3, 3, 4], at=START + SECOND)
    database.rotate(START + 50 * SECOND)
    stamped(database, [5, 6], at=START + 60 * SECOND, qos=2)
    session(
        database,
        Cursor(written[9].offset, 10, (12, 14), (11,), 20),
        awaiting=(1, 65_535),
        entries=[InboxEntry(take_offset(database, START + 70 * SECOND), written[0], qos=1)],
    )
    told: list[tuple[int, int]] = []
    found = result(
        tmp_path,
        stamp=text_stamp,
        ledger=ledger([1, 2, 3, 4, 5, 6]),
        progress=lambda *counts: told.append(counts),
    )
    assert details(found) == []
    assert (found.messages, found.stamped, found.acknowledged, found.sessions) == (39, 7, 6, 1)
    assert told[-1][0] == told[-1][1] == len(told) - 1 == 2


def test_an_empty_database_has_no_findings(database: RocksDatabase, tmp_path: Path) -> None:
    assert details(result(tmp_path)) == []


# -- the log -------------------------------------------------------------------------------


def test_missing(database: RocksDatabase, tmp_path: Path) -> None:
    stamped(database, [1, 2, 4])
    found = result(tmp_path, stamp=text_stamp, ledger=ledger([1, 2, 3, 4]))
    assert details(found) == [("missing", "number 3 of pump was acknowledged")]
    other = [LedgerLine("d/2/t", "pump", 1), LedgerLine("d/1/t", "valve", 1)]
    assert result(tmp_path, stamp=text_stamp, ledger=other).found == {"missing": 2}


def test_what_was_dropped_is_not_missing(database: RocksDatabase, tmp_path: Path) -> None:
    stamped(database, [1, 2, 3])
    database.rotate(START + 50 * SECOND)
    stamped(database, [4, 6], at=START + 60 * SECOND)
    to = tmp_path / "to"
    to.mkdir()
    sink = open_sink(Lake(str(to), "parquet"), database.format.database_id)
    options = ReadOptions(str(tmp_path / "db"))
    archive = Archive(options, sink, Wanted(format="parquet"), directory=to, execute=execute_here)
    while archive.run_round().rows:
        pass
    database.drop_generation(1)
    found = result(tmp_path, stamp=text_stamp, ledger=ledger([1, 2, 3, 4, 5, 6]))
    assert (details(found), found.older) == ([("missing", "number 5 of pump was acknowledged")], 3)
    # Of a publisher that is not there at all, only the moment tells.
    late = [LedgerLine("d/1/t", "valve", 1, START), LedgerLine("d/1/t", "valve", 2, 2 * START)]
    assert result(tmp_path, stamp=text_stamp, ledger=late).found == {"missing": 1}
    # The archive has what the log has not.
    whole = audit(
        msgspec.structs.replace(options, catalog=str(to)),
        stamp=text_stamp,
        ledger=ledger([1, 2, 3, 4, 5, 6, 7]),
    )
    assert [detail for _, detail in details(whole)] == [
        "number 5 of pump was acknowledged",
        "number 7 of pump was acknowledged",
    ]
    assert (whole.messages, whole.older) == (5, 0)


def test_repeated(database: RocksDatabase, tmp_path: Path) -> None:
    stamped(database, [1, 2, 2, 3], qos=2)
    found = result(tmp_path, stamp=text_stamp)
    assert details(found) == [("repeated", "number 2 of pump is there twice")]


def test_out_of_order(database: RocksDatabase, tmp_path: Path) -> None:
    stamped(database, [1, 3, 2, 4])
    found = result(tmp_path, stamp=text_stamp, ledger=ledger([1, 2, 3, 4]))
    assert details(found) == [("order", "number 2 of pump comes after 3")]


def test_an_index_entry_without_a_message(database: RocksDatabase, tmp_path: Path) -> None:
    stamps = append(database, TOPICS, at=START)

    def change(engine: Engine) -> list[Any]:
        *_, last = engine.keys(MESSAGES, b"", ALL)
        return [MESSAGES, last, None]

    edit(tmp_path, database, change)
    kinds = [detail for _, detail in details(result(tmp_path))]
    assert "an index entry has no message" in kinds
    assert f"{len(stamps) - 1} messages, but {len(stamps)} were counted" in kinds


def test_a_message_without_its_index_entry(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, TOPICS, at=START)
    edit(tmp_path, database, lambda engine: [INDEX, next(engine.keys(INDEX, b"", ALL)), None])
    assert details(result(tmp_path)) == [("record", "a varying level has no index entry")]


def test_two_messages_with_one_offset(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["a", "b"], at=START)
    other = append(database, ["a"], at=START + SECOND)[0]

    def change(engine: Engine) -> list[Any]:
        first = next(engine.keys(MESSAGES, b"", ALL))
        second = next(key for key in engine.keys(MESSAGES, b"", ALL) if key[:8] != first[:8])
        return [MESSAGES, second[:8] + other.offset.to_bytes(8, "big"), encode_message(other)]

    edit(tmp_path, database, change)
    found = [each for each in details(result(tmp_path)) if each[0] == "offset"]
    assert found == [("offset", "more than one message has this offset")]


def test_a_message_from_the_future(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["a"], at=START, published_at=START + SECOND)
    found = result(tmp_path)
    assert details(found) == [("offset", f"the message at offset {START} is from a time after it")]
    assert found.problems[0].subject == "a"


def test_a_damaged_record(database: RocksDatabase, tmp_path: Path) -> None:
    session(database, Cursor())
    edit(
        tmp_path,
        database,
        lambda _: [STATE, keys.session_rows("gone") + b"c", b"\xff"],
    )
    assert details(result(tmp_path)) == [("record", "a row of a session that is not there")]


# -- sessions ------------------------------------------------------------------------------


def one_problem(path: Path) -> tuple[str, str]:
    (problem,) = details(result(path))
    return problem


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor(START, 1, sent=5),
        Cursor(START, 1, settled=(5,), sent=4),
        Cursor(START, 1, released=(5,), sent=5),
    ],
)
def test_a_cursor_past_what_is_owed(
    cursor: Cursor, database: RocksDatabase, tmp_path: Path
) -> None:
    append(database, ["d/1/t", "d/2/t", "d/3/t", "other"], at=START)
    session(database, cursor)
    assert one_problem(tmp_path) == (
        "cursor",
        "serial number 5 was sent or settled, but only those up to 3 are owed",
    )


def test_entries_of_the_private_stream_are_owed(database: RocksDatabase, tmp_path: Path) -> None:
    (message,) = append(database, ["x"], at=START)
    entries = [
        InboxEntry(take_offset(database, START + 5), message, qos=1),
        # A number from another broker, and what it leaves out.
        InboxEntry(take_offset(database, START + 6), message, qos=1, serial=70),
    ]
    session(database, Cursor(START, 1, sent=70), entries=entries, subscriptions=())
    assert details(result(tmp_path)) == []
    session(database, Cursor(START, 1, sent=71), entries=entries, subscriptions=())
    assert one_problem(tmp_path)[0] == "cursor"


def test_a_cursor_behind_the_last_offset_of_all(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["d/1/t"], at=START)
    session(database, Cursor(START + 10 * SECOND, 1))
    assert one_problem(tmp_path) == ("record", "the cursor is beyond the last offset")


def test_identifiers_that_cannot_be(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["d/1/t"] * 3, at=START)
    session(database, Cursor(0, 0, (2,), (2, 3), 2), awaiting=(0,))
    assert [detail for _, detail in details(result(tmp_path))] == [
        "awaits the release of packet identifier 0, which does not exist",
        "serial number 2 is settled, and awaits PUBCOMP",
        "serial number 3 was received, but never sent",
    ]


def test_more_in_flight_than_there_are_identifiers(database: RocksDatabase, tmp_path: Path) -> None:
    (message,) = append(database, ["x"], at=START)
    entry = InboxEntry(take_offset(database, START + 5), message, qos=1, serial=70_000)
    session(database, Cursor(START, 1, sent=70_000), entries=[entry])
    assert one_problem(tmp_path) == (
        "cursor",
        "serial numbers 2 to 70000 share packet identifiers",
    )


def test_subscriptions_that_cannot_be(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["d/1/t"], at=START)
    subscriptions = [
        Subscription("a", since_offset=START + SECOND),
        Subscription("b", since_offset=START, until_offset=5),
        Subscription("c", since_offset=5, until_offset=START),
    ]
    session(database, Cursor(), subscriptions=subscriptions)
    assert sorted(detail for _, detail in details(result(tmp_path))) == [
        "the subscription a begins after the last offset",
        "the subscription b ends before it begins",
    ]


def test_a_retained_message_that_is_not_the_last(database: RocksDatabase, tmp_path: Path) -> None:
    def publish(topic: str, at: int, *, retains: bool) -> None:
        batch = Staged(database)
        message = Message(topic, b"x", 1, retain=True, publisher="c", published_at_us=at)
        batch.append(message, at)
        if retains:
            batch.put_retained(message)
        batch.write()

    for number, topic in enumerate(("a", "$SYS/a", "b")):
        publish(topic, START + number, retains=True)
    assert details(result(tmp_path)) == []
    publish("a", START + SECOND, retains=False)
    publish("$SYS/a", START + 2 * SECOND, retains=False)
    found = result(tmp_path)
    assert found.found == {"retained": 2}
    assert sorted(each.subject for each in found.problems) == ["$SYS/a", "a"]


# -- the rest ------------------------------------------------------------------------------


def test_many_findings_are_counted_and_some_told(database: RocksDatabase, tmp_path: Path) -> None:
    stamped(database, [1])
    found = result(tmp_path, stamp=text_stamp, ledger=ledger(range(1, 500)))
    assert found.found == {"missing": 498}
    assert len(found.problems) == EXAMPLES_MAX


def test_stamps() -> None:
    assert text_stamp("c", b"pump 7 0 ...") == ("pump", 7)
    assert text_stamp("c", b"pump 7") == ("pump", 7)
    for payload in (b"", b"pump", b"pump x y", b"\xff 7 ", b"pump -1 "):
        assert text_stamp("c", payload) is None
    by_field = json_stamp("n")
    assert by_field("c", b'{"n": 7}') == ("c", 7)
    for payload in (b"", b"7", b"[7]", b'{"n": "7"}', b'{"n": true}', b'{"m": 7}', b"\xff"):
        assert by_field("c", payload) is None


def test_ledgers(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.write_text('{"topic": "a", "publisher": "p", "number": 1}\n\n')
    assert list(read_ledger(file)) == [LedgerLine("a", "p", 1)]
    file.write_text('{"topic": "a"}\n')
    with pytest.raises(ConfigError, match="line 1"):
        list(read_ledger(file))
