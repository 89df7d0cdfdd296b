"""The check notices each kind of damage, and nothing where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor, GroupRecord, Subscription
from perdure.storage.codec import encode_cursor, encode_record
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import RocksDatabase, keys
from perdure.storage.rocksdb.engine import INBOX, META, RETAINED, STATE, Engine
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.marks import Marks
from tests.contract.values import NOW_US, entry, message, record
from tests.support.staged import Staged

DATA, INDEX = table_names(1)
ROWS = keys.session_rows("c1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "d"
    config = RocksdbConfig(learn_thresholds=(1,))
    database = RocksDatabase.open(path, config=config, now_us=NOW_US)
    batch = Staged(database)
    for topic in ("a/1", "b/2", "c/3"):
        batch.append(message(topic), NOW_US)
    batch.put_session(record("c1", expires_at_us=NOW_US))
    batch.put_cursor("c1", Cursor(NOW_US, 5, (7,), (8,), 9), epoch=1)
    for group, where_id in (("", ""), ("g", ""), ("", "hot"), ("g", "hot")):
        sub = Subscription("a/#", group, where="x > 1" if where_id else "", where_id=where_id)
        batch.put_subscription("c1", sub, epoch=1)
    batch.put_awaiting_release("c1", 4, epoch=1)
    batch.put_inbox("c1", entry(NOW_US), epoch=1)
    batch.put_group(GroupRecord("g", "f", 1, 2))
    batch.put_group_member("g/f", "c1")
    batch.put_group_entry("g/f", entry(NOW_US))
    batch.put_retained(message("r", offset=NOW_US))
    batch.write()
    database.close()
    return path


def problems(path: Path, *operations: object) -> list[tuple[str, str]]:
    """What the check says after rows were changed."""
    engine = Engine(path, RocksdbConfig())
    if operations:
        engine.write(list(operations))
    engine.close()
    database = RocksDatabase.open(path, read_only=True)
    found = [(finding.table, finding.problem) for finding in database.check()]
    database.close()
    return found


def test_a_sound_database(path: Path) -> None:
    assert problems(path) == []


DAMAGE: list[tuple[str, bytes, bytes | None, str]] = [
    (META, b"?", b"", "unknown kind"),
    (META, keys.generation_node(9, 2), b"", "a generation that is not there"),
    (META, keys.generation_counters(1), b"\x01" + (9).to_bytes(8), "9 were counted"),
    (META, keys.generation_point(1, 5), (99).to_bytes(8), "do not ascend"),
    (META, keys.HIGH, Marks(NOW_US + 9, 1, 2, 1).encode(), "2 were counted"),
    (META, keys.HIGH, Marks(NOW_US + 9, 1, 1, 2).encode(), "2 were counted"),
    (META, keys.HIGH, Marks(NOW_US - 1, 1, 1, 1).encode(), "another generation"),
    (META, keys.HIGH, Marks(NOW_US - 1, 1, 1, 1).encode(), "beyond the last offset"),
    (STATE, keys.session("c1"), None, "a session that is not there"),
    (STATE, keys.session("c2"), encode_record(record("c1")), "another session's record"),
    (STATE, keys.session("c1"), b"\x01\x90", "does not decode"),
    (STATE, keys.session("c1"), b"\x09", "has version 9"),
    (STATE, keys.deadline(NOW_US, "c1"), None, "not in the index"),
    (STATE, keys.deadline(NOW_US, "c9"), b"", "that no session has"),
    (STATE, keys.deadline(NOW_US + 1, "c1"), b"", "that no session has"),
    (STATE, keys.subscriber("a/#", "c1", "a/#", 0), None, "its filter is not in the index"),
    (STATE, keys.subscriber("a/+", "c1", "a/+", 0), b"", "that is not there"),
    (STATE, keys.subscriber("a/#", "c9", "a/#", 0), b"", "that is not there"),
    (STATE, keys.subscriber("b/#", "c1", "a/#", 0), b"", "that is not there"),
    (STATE, b"fa\xffx", b"", "does not decode"),
    (
        STATE,
        keys.subscription(ROWS, 0, "a/#"),
        encode_record(Subscription("a/#", until_offset=7)),
        "that is not there",
    ),
    (STATE, keys.cursor(ROWS), encode_cursor(Cursor(NOW_US + 99)), "beyond the last offset"),
    (STATE, keys.cursor(ROWS), encode_cursor(Cursor(1, 5, (9, 7))), "do not ascend"),
    (STATE, keys.cursor(ROWS), encode_cursor(Cursor(1, 5, (5,))), "do not ascend"),
    (STATE, keys.subscription(ROWS, 3, "x"), encode_record(Subscription("y")), "another sub"),
    (STATE, ROWS + b"rx", b"", "not a packet identifier"),
    (STATE, ROWS + b"?", b"", "unknown kind"),
    (STATE, keys.group("g/x"), encode_record(GroupRecord("g", "f", 1, 2)), "another group's"),
    (STATE, keys.group_members("g/f"), b"", "a member has no name"),
    (STATE, b"?", b"", "unknown kind"),
    (INBOX, keys.offset(keys.session_inbox("c9"), 5), b"\x01" + bytes(5), "not there"),
    (INBOX, keys.offset(keys.session_inbox("c1"), 2**62), b"\x01" + bytes(5), "beyond"),
    (INBOX, keys.offset(keys.session_inbox("c1"), 5), b"\x01", "does not decode"),
    (INBOX, keys.session_inbox("c1"), b"\x01" + bytes(5), "unknown kind"),
    (RETAINED, retained_key("r"), b"", "cut short"),
    (RETAINED, retained_key("r2"), b"\xff" * 40, "has version"),
    (DATA, b"short", b"", ""),
    (INDEX, bytes(25), b"", "an index entry has no message"),
]


@pytest.mark.parametrize(("table", "key", "value", "expected"), DAMAGE)
def test_damage_is_noticed(
    path: Path, table: str, key: bytes, value: bytes | None, expected: str
) -> None:
    found = problems(path, table, key, value)
    assert any(expected in problem for _, problem in found), found


def rows(path: Path, table: str) -> list[tuple[bytes, bytes]]:
    engine = Engine(path, RocksdbConfig())
    found = list(engine.items(table, b"", b"\xff" * 64))
    engine.close()
    return found


def test_log_damage_is_noticed(path: Path) -> None:
    data, index = rows(path, DATA), rows(path, INDEX)
    assert len(data) == 3
    key, value = data[1]
    found = problems(path, DATA, key, value[:5], INDEX, index[-1][0], None)
    assert any("does not decode" in problem for _, problem in found)
    assert any("no index entry" in problem for _, problem in found)
    moved = index[-1][0][:9] + b"otherhsh" + index[-1][0][17:]
    found = problems(path, DATA, key, value, INDEX, moved, b"")
    assert (INDEX, "an index entry belongs to another token") in found
    varied = data[-1][0]
    assert varied.endswith(b"3")
    found = problems(path, INDEX, moved, None, INDEX, *index[-1], DATA, varied + b"/x", value)
    assert any("has no stream" in problem for _, problem in found)
