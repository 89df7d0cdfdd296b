"""Rows that a content filter keeps are those that it holds for, one by one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.config.schema import RocksdbConfig
from perdure.content import parse_filter
from perdure.errors import ConfigError
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.properties import Properties
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from tests.support.binary_payloads import cbor_of, sparkplug_of
from tests.support.staged import Staged

pytest.importorskip("pyarrow")
from perdure.pipeline.content import ContentKernel
from perdure.pipeline.log_source import plan, read

START = 1_700_000_000_000_000
SITES = ((), (("site", "north"),), (("site", "south"), ("level", "3")))
PAYLOADS = (b'{"t":%d}', b'{"t":"%d","deep":{"list":[1,2]}}', b"%d", b"text %d", b"")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Message]]:
    path = tmp_path_factory.mktemp("log") / "db"
    config = RocksdbConfig(tail_messages=0, learn_thresholds=(3, 3))
    database = RocksDatabase.open(path, config=config, now_us=START)
    batch = Staged(database)
    messages = []
    for number in range(2_000):
        payload = PAYLOADS[number % len(PAYLOADS)]
        properties = Properties(user_properties=SITES[number % len(SITES)])
        message = Message(
            f"d/{number % 7}",
            payload % (number % 50) if payload else payload,
            1,
            publisher="x" * (number % 3),
            properties=forward_properties(properties),
            expires_at_us=number % 2 * (START + 10**12),
            published_at_us=START + number,
        )
        batch.append(message, START + number)
        messages.append(message)
    batch.write()
    database.close()
    return path, messages


def offsets(options: ReadOptions, columns: list[str], narrowing: Narrowing) -> list[int]:
    files = LogFiles(Path(options.path))
    parts = plan(files, options, narrowing)
    files.close()
    return sorted(
        offset
        for part in parts
        for batch in read(part, columns)
        for offset in batch.column("offset").to_pylist()
    )


@pytest.mark.parametrize(
    "where",
    [
        "{}",
        '{"t":{"$gt":30}}',
        '{"t":{"$exists":true},"$property.site":{"$ne":"north"}}',
        '{"deep.list.1":2}',
        '{"$payload":{"$lt":10}}',
        '{"$or":[{"$property.level":{"$gte":3}},{"t":"7"}]}',
        '{"$property.gone":1}',
    ],
)
@pytest.mark.parametrize("columns", [["offset"], ["offset", "payload", "user_properties"]])
@pytest.mark.parametrize(
    "narrowing",
    [Narrowing(), Narrowing((("d/3",),), published_from=START + 300, published_until=START + 999)],
)
def test_equal_to_trying_each_message(
    log: tuple[Path, list[Message]], where: str, columns: list[str], narrowing: Narrowing
) -> None:
    path, messages = log
    holds = parse_filter(where).holds
    expected = [
        message.offset
        for number, message in enumerate(messages)
        if holds(message.payload, SITES[number % len(SITES)])
        and (not narrowing.filter_sets or message.topic == "d/3")
        and (narrowing.published_from or 0) <= message.published_at_us
        and message.published_at_us <= (narrowing.published_until or 2**62)
    ]
    assert offsets(ReadOptions(str(path), where=where), columns, narrowing) == expected


def test_the_filter_narrows_at_all(log: tuple[Path, list[Message]]) -> None:
    path, messages = log
    found = offsets(ReadOptions(str(path), where='{"t":{"$gt":30}}'), ["offset"], Narrowing())
    assert 0 < len(found) < len(messages)


def test_a_batch_has_the_columns_of_its_rows(log: tuple[Path, list[Message]]) -> None:
    path, _ = log
    files = LogFiles(path)
    (part, *_) = plan(files, ReadOptions(str(path), where='{"t":31}'), Narrowing())
    files.close()
    rows = [row for batch in read(part, ["payload", "topic"]) for row in batch.to_pylist()]
    assert {row["payload"] for row in rows} == set()
    (part, *_) = [msgspec.structs.replace(part, where='{"t":"31"}')]
    rows = [row for batch in read(part, ["payload", "topic"]) for row in batch.to_pylist()]
    assert {row["payload"] for row in rows} == {b'{"t":"31","deep":{"list":[1,2]}}'}


def test_binary_payloads_by_content_type_and_topic(tmp_path: Path) -> None:
    """The topic of each row counts, which is read out of its key."""
    config = RocksdbConfig(tail_messages=0, learn_thresholds=(3, 3))
    database = RocksDatabase.open(tmp_path / "db", config=config, now_us=START)
    batch = Staged(database)
    parsed = parse_filter('{"t":{"$gt":30}}')
    expected = []
    for number in range(300):
        value = {"t": number % 60}
        kind = ("spBv1.0/g/DDATA/n", "spBv1.0/g/OTHER/n", "c")[number % 3]
        content_type = "application/cbor" if kind == "c" else None
        payload = cbor_of(value) if kind == "c" else sparkplug_of(value, 17)
        message = Message(
            f"{kind}/{number % 7}",
            payload,
            1,
            properties=forward_properties(Properties(content_type=content_type)),
            published_at_us=START + number,
        )
        batch.append(message, START + number)
        assert parsed.fulfilled_by(message) is (number % 60 > 30 and number % 3 != 1)
        if parsed.fulfilled_by(message):
            expected.append(message.offset)
    batch.write()
    database.close()
    options = ReadOptions(str(tmp_path / "db"), where=parsed.text)
    assert expected
    assert offsets(options, ["offset"], Narrowing()) == expected
    assert offsets(options, ["offset", "topic", "payload"], Narrowing()) == expected


def test_no_filter_at_all() -> None:
    with pytest.raises(ConfigError, match=r"where: a\.\$near: no such operator"):
        ContentKernel('{"a":{"$near":1}}')
