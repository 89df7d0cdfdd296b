"""Columns are what decoding message by message gives."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward
from perdure.storage.codec import encode_message
from perdure.storage.rocksdb.layout_v1_keys import pack_offset
from perdure.storage.rocksdb.page import Page
from perdure.topic.structure import StructureTrie

pytest.importorskip("pyarrow")
from perdure.pipeline.decode import Names, decode_page
from perdure.pipeline.schema import BY_NAME

ALL = list(BY_NAME)
PROPERTIES = [
    b"",
    b"\x01\x01\x03\x00\x04json",
    b"\x08\x00\x03r/t\x09\x00\x02\x00\xff",
    b"\x26\x00\x01a\x00\x01b\x26\x00\x01a\x00\x01c",
]
MOMENTS = st.integers(0, 2**52)
MESSAGES = st.builds(
    Message,
    topic=st.lists(st.sampled_from(["a", "b", "c", "d", "", "é"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool),
    payload=st.binary(max_size=20),
    qos=st.sampled_from([0, 1, 2]),
    retain=st.booleans(),
    publisher=st.sampled_from(["", "client", "ünï"]),
    properties=st.sampled_from(PROPERTIES),
    expires_at_us=st.sampled_from([0, 0, 5]),
    published_at_us=MOMENTS,
    offset=st.integers(1, 2**62),
)


def page_of(messages: list[Message], trie: StructureTrie) -> Page:
    keys, values = [], []
    for message in messages:
        resolved = trie.resolve(message.topic)
        varying = "/".join(resolved.varying).encode()
        keys.append(pack_offset(resolved.stream) + pack_offset(message.offset) + varying)
        values.append(encode_message(message))
    return Page.of(keys, values)


def names_of(trie: StructureTrie) -> Names:
    def topic(key: bytes) -> str:
        stream = int.from_bytes(key[:8])
        varying = key[16:].decode()
        if "+" not in trie.pattern(stream).split("/"):
            return trie.topic(stream, [])
        return trie.topic(stream, varying.split("/"))

    return Names(3, topic, trie.pattern)


def at_us(value: Any) -> int | None:
    return None if value is None else round(value.timestamp() * 1_000_000)


def expected(message: Message, trie: StructureTrie) -> dict[str, object]:
    found = properties_from_forward(message.properties)
    pairs = [{"name": name, "value": value} for name, value in found.user_properties]
    return {
        "topic": message.topic,
        "payload": message.payload,
        "client_id": message.publisher,
        "offset": message.offset,
        "published_at": message.published_at_us,
        "qos": message.qos,
        "retain": message.retain,
        "expires_at": message.expires_at_us or None,
        "payload_format": found.payload_format_indicator,
        "content_type": found.content_type,
        "response_topic": found.response_topic,
        "correlation_data": found.correlation_data,
        "user_properties": pairs or None,
        "generation": 3,
        "structure": trie.pattern(trie.resolve(message.topic).stream),
    }


@settings(max_examples=150)
@given(
    messages=st.lists(MESSAGES, min_size=1, max_size=80),
    by_stream=st.booleans(),
    columns=st.one_of(st.just(ALL), st.lists(st.sampled_from(ALL), min_size=1, unique=True)),
    thresholds=st.sampled_from([(100, 10), (2, 1), (0,)]),
)
def test_equal_to_the_codec(
    messages: list[Message], by_stream: bool, columns: list[str], thresholds: tuple[int, ...]
) -> None:
    trie = StructureTrie(thresholds=thresholds)
    if by_stream:
        messages.sort(key=lambda message: trie.resolve(message.topic).stream)
    batch = decode_page(page_of(messages, trie), columns, names_of(trie))
    batch.validate(full=True)
    assert batch.schema.names == columns
    rows = batch.to_pylist()
    for row in rows:
        for name in ("published_at", "expires_at"):
            if name in row:
                row[name] = at_us(row[name])
    wanted = [expected(message, trie) for message in messages]
    assert rows == [{name: row[name] for name in columns} for row in wanted]


def test_many_rows_of_few_streams() -> None:
    trie = StructureTrie(thresholds=(10, 1, 1))
    topics = ["a", *[f"d/{n}/t" for n in range(40)], *[f"e/{n}/{n % 7}/x" for n in range(60)]]
    messages = [
        Message(topic, b"p", offset=number * 200 + turn + 1)
        for turn, topic in enumerate(topics)
        for number in range(30)
    ]
    messages.sort(key=lambda message: trie.resolve(message.topic).stream)
    batch = decode_page(page_of(messages, trie), ["topic", "offset"], names_of(trie))
    assert batch.column("topic").to_pylist() == [message.topic for message in messages]
    assert batch.column("offset").to_pylist() == [message.offset for message in messages]


def test_rows_published_outside_a_range_are_left_out() -> None:
    trie = StructureTrie()
    messages = [Message("a/b", b"", published_at_us=at, offset=at) for at in (5, 6, 7, 8)]
    page = page_of(messages, trie)
    for bounds, kept in (
        ((6, 7), [6, 7]),
        ((None, 5), [5]),
        ((9, None), []),
        ((5, 8), [5, 6, 7, 8]),
    ):
        batch = decode_page(
            page,
            ["offset", "topic"],
            names_of(trie),
            published_from=bounds[0],
            published_until=bounds[1],
        )
        assert batch.column("offset").to_pylist() == kept
        assert batch.column("topic").to_pylist() == ["a/b"] * len(kept)


KEY = pack_offset(2) + pack_offset(9)
GOOD = encode_message(Message("a", b"payload", properties=PROPERTIES[1], publisher="p"))


@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        (KEY[:15], GOOD, StorageCorrupt, "key is cut short"),
        (KEY, GOOD[:11], StorageCorrupt, "cut short"),
        (KEY, GOOD[:20], StorageCorrupt, "cut short"),
        (KEY, GOOD[:26], StorageCorrupt, "cut short"),
        (KEY, b"\x02" + GOOD[1:], FormatTooNew, "version 2"),
        (KEY, b"\x00" + GOOD[1:], StorageCorrupt, "no version"),
        (KEY, GOOD[:24] + b"\xff" + GOOD[25:], StorageCorrupt, "client id is not UTF-8"),
        (KEY, GOOD[:25] + b"\xee" + GOOD[26:], StorageCorrupt, "properties"),
    ],
)
def test_damaged_rows(key: bytes, value: bytes, error: type[Exception], text: str) -> None:
    trie = StructureTrie()
    trie.resolve("a")
    good = (KEY, GOOD)
    page = Page.of([good[0], key], [good[1], value])
    with pytest.raises(error, match=text):
        decode_page(page, ALL, names_of(trie))


FIRST_PAGE = """
import sys
from perdure.pipeline.decode import Names, decode_page
from perdure.storage.rocksdb.page import Page
from perdure.model import Message
from perdure.storage.codec import encode_message
value = encode_message(Message("a/1", b"p", 1, expires_at_us=5))
page = Page.of([bytes(7) + bytes([n]) + bytes(8) + b"1" for n in (2, 2, 3)], [value] * 3)
names = Names(1, lambda key: "b", lambda stream: "a/+" if stream == 2 else "b")
columns = ["topic", "payload", "expires_at", "retain", "structure", "content_type"]
assert decode_page(page, columns, names).num_rows == 3
assert "pandas" not in sys.modules
"""


def test_a_fresh_worker_does_not_wait_for_pandas() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", FIRST_PAGE], check=True, env=environment)
