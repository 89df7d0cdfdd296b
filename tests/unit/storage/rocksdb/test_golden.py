"""What is on disk, byte for byte: ``tests/golden/rocksdb_*.jsonl``.

Each file is a whole database, one row per line: table, key, value. It was written by the release
that introduced its layout or format and never changes: a release that cannot read it has broken
somebody's data, and one that writes something else has made a new layout without saying so. For a
new one the test writes the file, and fails until it has been looked at and committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.model import (
    BackfillProgress,
    Cursor,
    GroupRecord,
    InboxEntry,
    Message,
    Subscription,
    Will,
)
from perdure.storage.batch import Batch
from perdure.storage.codec import encode_record
from perdure.storage.rocksdb import RocksDatabase, keys, layout_v1, store
from perdure.storage.rocksdb.engine import META, STATE, Engine
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.opening import FORMAT, DatabaseFormat
from tests.contract.values import NOW_US, append_all, message, read_all, record
from tests.support.earlier_layout import earlier_layout

GOLDEN = Path(__file__).parents[3] / "golden"
Kind = Literal["skipscan", "bitmask", "runs"]
"""Layouts 1, 2 and 4."""
KINDS: tuple[Kind, ...] = ("skipscan", "bitmask", "runs")
NUMBERS = {"skipscan": layout_v1.SINGLES_LAYOUT, "bitmask": 2, "runs": layout_v1.LAYOUT}
WRITTEN = [
    (kind, version)
    for kind in KINDS
    for version in range(1, FORMAT + 1)
    if (kind, version) != ("runs", 1)
]
"""The golden files."""
ALL_END = b"\xff" * 64

LOG = [
    ("devices/1/state", b"on"),
    ("devices/2/state", b"off"),
    ("devices/3/state", b""),
    ("devices/3/a/b/c/d", bytes(range(8))),
    ("$SYS/uptime", b"5"),
    ("/ü//", b"\xff"),
]
RUN = [("devices/9/state", b"a"), ("devices/8/state", b"b"), ("devices/9/state", b"c")]
"""What is written to a log with runs, too."""
RECORD = record(
    "client/ü",
    epoch=7,
    connected=False,
    will=Will("w", b"\x00", 2, True, b"\x01\x01", 5, None),
    will_at_us=NOW_US + 5,
    expires_at_us=NOW_US + 9,
    expiry_s=9,
    username="u",
    protocol=5,
    dropped_count=3,
)
CURSOR = Cursor(NOW_US + 2, 70_000, (70_002, 70_004), (70_003,), 70_010)
SUBS = (
    Subscription("a/#", "g", 2, True, True, 2, 268_435_455, NOW_US, NOW_US + 1),
    Subscription(
        "b", since_offset=NOW_US, backfill=BackfillProgress(True, "b/x", NOW_US + 1, NOW_US)
    ),
)


def config(kind: Kind) -> RocksdbConfig:
    layout: Literal["skipscan", "bitmask"] = "bitmask" if kind == "bitmask" else "skipscan"
    return RocksdbConfig(layout=layout, tail_messages=0, learn_thresholds=(5, 2))


def begun(path: Path, kind: Kind) -> RocksDatabase:
    """A new database."""
    if kind == "skipscan":
        with earlier_layout():
            return RocksDatabase.open(path, config=config(kind), now_us=NOW_US)
    return RocksDatabase.open(path, config=config(kind), now_us=NOW_US)


def log_messages() -> list[Message]:
    messages = [message(topic, payload) for topic, payload in LOG]
    messages[1] = message(
        "devices/2/state", b"off", qos=2, retain=True, properties=b"\x01\x01", expires_at_us=NOW_US
    )
    return messages


def entries() -> list[InboxEntry]:
    value = message("inbox/t", b"v", offset=NOW_US)
    full = InboxEntry(
        NOW_US + 1, value, qos=2, retain=True, identifiers=(1, 268_435_455), group_key="g/a/#"
    )
    return [full, InboxEntry(NOW_US + 2, None, qos=1)]


def write_everything(database: RocksDatabase, kind: Kind) -> None:
    """One of each thing that can be stored, over two generations."""
    batch = Batch()
    for value in log_messages():
        batch.append(value)
    batch.put_session(RECORD)
    batch.put_cursor(RECORD.client_id, CURSOR, epoch=7)
    for sub in SUBS:
        batch.put_subscription(RECORD.client_id, sub, epoch=7)
    batch.put_awaiting_release(RECORD.client_id, 65_535, epoch=7)
    for entry in entries():
        batch.put_inbox(RECORD.client_id, entry, epoch=7)
        batch.put_group_entry("g/a/#", entry)
    batch.put_group(GroupRecord("g", "a/#", NOW_US, NOW_US))
    batch.put_group_member("g/a/#", RECORD.client_id)
    batch.put_retained(message("r/t", b"kept", retain=True, offset=NOW_US + 3))
    database.submit(batch, NOW_US)
    database.rotate(NOW_US + 1_000)
    batch = Batch()
    batch.append(message("devices/9/state", b"new"))
    database.submit(batch, NOW_US + 2_000)
    if kind == "runs":
        append_all(database, *(message(*each) for each in RUN), now_us=NOW_US + 3_000)


def dump(path: Path, kind: Kind) -> Iterator[str]:
    """The rows of a closed database."""
    engine = Engine(path, config(kind), read_only=True)
    for table in sorted(engine.tables):
        for key, value in engine.items(table, b"", ALL_END):
            # The identity of a database is its own.
            if table != META or key != keys.FORMAT:
                yield json.dumps([table, key.hex(), value.hex()])
    engine.close()


def load(path: Path, kind: Kind, version: int) -> None:
    """A database with the rows of a golden file of a format."""
    RocksDatabase.open(path, config=config(kind), now_us=NOW_US).close()
    rows = [json.loads(line) for line in golden(kind, version).read_text().splitlines()]
    engine = Engine(path, config(kind))
    engine.write([META, keys.FORMAT, encode_record(DatabaseFormat(version, "id", NOW_US))])
    for table in {*table_names(1), *table_names(2)} - engine.tables:
        engine.create_table(table)
    for key in list(engine.keys(META, b"G", b"U")):
        engine.write([META, key, None])
    for table, key, value in rows:
        engine.write([table, bytes.fromhex(key), bytes.fromhex(value)])
    engine.close()


def golden(kind: Kind, version: int = FORMAT) -> Path:
    return GOLDEN / f"rocksdb_{kind}_{version}.jsonl"


@pytest.mark.parametrize("kind", KINDS)
def test_this_release_writes_what_it_wrote(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of layout 1 a generation may go on; that another one begins was in an earlier release.
    monkeypatch.setitem(store.LAYOUTS, "skipscan", NUMBERS[kind])
    database = RocksDatabase.open(tmp_path / "d", config=config(kind), now_us=NOW_US)
    write_everything(database, kind)
    database.close()
    if not golden(kind).exists():
        golden(kind).write_text("\n".join(dump(tmp_path / "d", kind)) + "\n")
        pytest.fail(f"{golden(kind)} was not there: look at it, then commit it")
    assert list(dump(tmp_path / "d", kind)) == golden(kind).read_text().splitlines()


@pytest.mark.parametrize("kind", ["skipscan", "bitmask"])
def test_an_earlier_format_becomes_this_one(kind: Kind, tmp_path: Path) -> None:
    """Also where an attempt was cut short, and the earlier release has written since."""
    load(tmp_path / "d", kind, 1)
    stale = keys.subscriber("gone/#", "nobody", "gone/#", 1)
    engine = Engine(tmp_path / "d", config(kind))
    engine.write([STATE, stale, b""])
    engine.close()
    for _ in range(2):
        database = RocksDatabase.open(tmp_path / "d", config=config(kind))
        assert database.format.version == FORMAT
        database.close()
        expected = golden(kind).read_text().splitlines()
        state = [row for row in expected if row.startswith('["state"')]
        found = list(dump(tmp_path / "d", kind))
        assert [row for row in found if row.startswith('["state"')] == state


@pytest.mark.parametrize(("kind", "version"), WRITTEN)
async def test_this_release_reads_what_was_written(
    kind: Kind, version: int, tmp_path: Path
) -> None:
    load(tmp_path / "d", kind, version)
    database = RocksDatabase.open(tmp_path / "d", config=config(kind))
    run = RUN if kind == "runs" else []
    assert list(database.check()) == []
    expected = log_messages()
    for number, value in enumerate(expected):
        value.offset = NOW_US + number
    found = await read_all(database, "#", "$SYS/#")
    assert found[: len(LOG)] == expected
    assert [m.topic for m in await read_all(database, "devices/+/state")] == [
        *(f"devices/{number}/state" for number in (1, 2, 3, 9)),
        *(topic for topic, _ in run),
    ]
    last = await read_all(database, "devices/9/state")
    assert [m.payload for m in last] == [b"new", *(p for t, p in run if t == "devices/9/state")]
    stored = await database.open_session(RECORD.client_id)
    assert stored is not None
    assert stored.record == RECORD
    assert stored.cursor == CURSOR
    assert set(stored.subscriptions) == set(SUBS)
    assert stored.awaiting_release == (65_535,)
    bounds = {"after_offset": 0, "until_offset": 2**62, "limit": 9}
    assert await database.read_inbox(RECORD.client_id, **bounds) == entries()
    assert await database.groups() == [GroupRecord("g", "a/#", NOW_US, NOW_US)]
    assert await database.group_members("g/a/#") == [RECORD.client_id]
    assert await database.read_group_entries("g/a/#", limit=9) == entries()
    assert await database.get_retained("r/t") == message(
        "r/t", b"kept", retain=True, offset=NOW_US + 3
    )
    assert [record.client_id for record in await database.due_sessions(2**62, limit=9)] == [
        RECORD.client_id
    ]
    assert [info.message_count for info in database.generations()] == [len(LOG), 1 + len(run)]
    assert database.last_offset == NOW_US + (3_002 if run else 2_000)
    database.close()


async def test_a_generation_goes_on_as_it_began(tmp_path: Path) -> None:
    """A release that writes runs writes none where an earlier one has begun, until it ends."""
    load(tmp_path / "d", "skipscan", FORMAT)
    for _ in range(2):
        database = RocksDatabase.open(tmp_path / "d", config=config("runs"))
        append_all(database, *(message(*each) for each in RUN), now_us=NOW_US + 3_000)
        assert [info.layout for info in database.generations()] == [1, 1]
        database.close()
    values = index_values(tmp_path / "d", 2)
    assert values == [b""] * 7
    database = RocksDatabase.open(tmp_path / "d", config=config("runs"))
    assert database.rotate(NOW_US + 9_000).layout == 4
    append_all(database, *(message(*each) for each in RUN), now_us=NOW_US + 9_000)
    found = [m.payload for m in await read_all(database, "devices/9/state")]
    assert found == [b"new", *[b"a", b"c"] * 3]
    assert list(database.check()) == []
    database.close()
    assert index_values(tmp_path / "d", 2) == values
    assert index_values(tmp_path / "d", 3) == [b"", (NOW_US + 9_000).to_bytes(8)]


def index_values(path: Path, generation: int) -> list[bytes]:
    """Of the index of a generation of a closed database, shortest first."""
    engine = Engine(path, config("runs"), read_only=True)
    found = [value for _, value in engine.items(table_names(generation)[1], b"", ALL_END)]
    engine.close()
    return sorted(found, key=len)


def test_generations_of_all_layouts_live_together(tmp_path: Path) -> None:
    """A layout is chosen by the header of each generation, not by the configuration."""
    database = begun(tmp_path / "d", "skipscan")
    write_everything(database, "skipscan")
    database.close()
    database = RocksDatabase.open(tmp_path / "d", config=config("bitmask"))
    database.rotate(NOW_US + 9_000)
    assert [info.layout for info in database.generations()] == [1, 1, 2]
    database.close()
    database = RocksDatabase.open(tmp_path / "d", config=config("runs"))
    database.rotate(NOW_US + 10_000)
    assert [info.layout for info in database.generations()] == [1, 1, 2, 4]
    assert list(database.check()) == []
    database.close()


def test_a_burst_is_one_row(tmp_path: Path) -> None:
    """These bytes are on disks."""
    path = tmp_path / "d"
    database = RocksDatabase.open(path, config=config("runs"), now_us=NOW_US)
    append_all(database, *[message("t", payload, publisher="p") for payload in (b"", b"ab")])
    extended = {"publisher": "", "properties": b"\x01\x01", "expires_at_us": 7}
    append_all(database, *[message("t", payload, **extended) for payload in (b"x", b"y")])
    database.close()
    data, _ = table_names(1)
    rows = [json.loads(line)[1:] for line in dump(path, "runs") if data in line]
    time = f"{NOW_US:016x}"
    assert rows == [
        [
            f"{2:016x}{NOW_US + 1:016x}",
            f"0201{time}0001" + "70" + "0002" + "0000000000000002" + "6162",
        ],
        [
            f"{2:016x}{NOW_US + 3:016x}",
            f"0209{time}0000{7:016x}00000002" + "0101" + "0002" + "0000000100000001" + "7879",
        ],
    ]
