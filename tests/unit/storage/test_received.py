"""What is received of a batch does what the batch does, and what it can't is decoded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageError
from perdure.model import Cursor, Message
from perdure.storage.batch import Batch
from perdure.storage.batch_codec import decode, encode
from perdure.storage.offsets import Offsets
from perdure.storage.operations import PutCursor
from perdure.storage.peer_operations import Speak
from perdure.storage.received import Received, cursors_of, receive
from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.known import KnownTopics
from tests.contract.values import entry, message, read_all, record

TIME_US = 1_700_000_000_000_000


def batch_of(chance: random.Random, count: int) -> Batch:
    """Messages as publishers send them: alone and in bursts, with and without properties."""
    batch = Batch()
    while len(batch.messages) < count:
        topic, publisher = chance.choice("abc"), chance.choice(("p", "", "Ä" * 300))
        properties = chance.choice((b"", b"", b"\x01\x01"))
        expires_at_us = chance.choice((0, 0, TIME_US))
        batch.speak(publisher or "p", epoch=4)
        for _ in range(chance.choice((1, 1, 2, 70))):
            batch.append(
                Message(
                    f"x/{topic}",
                    bytes(chance.randrange(3)),
                    qos=1,
                    publisher=publisher,
                    properties=properties,
                    expires_at_us=expires_at_us,
                    published_at_us=TIME_US,
                )
            )
    return batch


def anybody(client_id: str) -> int | None:
    """The epoch of every owner in these tests."""
    return -3 if client_id == "c" else 4


def received_of(value: bytes, *, first: int = 1) -> Received | None:
    """What is received of a batch alone; None = it has to be decoded."""
    received = Received()
    count = receive(value, received, first, KnownTopics(), anybody)
    if count < 0:
        assert is_as_new(received)
        return None
    assert count == received.rows.count
    return received


def is_as_new(received: Received) -> bool:
    rows = received.rows
    return not (
        received.operations
        or received.cursors
        or received.spoken
        or rows.topics
        or rows.values
        or rows.offsets
        or rows.count
        or rows.payload_bytes
    )


@pytest.mark.parametrize("seed", range(20))
def test_rows_have_the_messages_of_the_batch(seed: int) -> None:
    chance = random.Random(seed)
    value = encode(batch_of(chance, 150))
    decoded = decode(value, Offsets(), TIME_US)
    received = received_of(value, first=decoded.first_offset)
    assert received is not None
    rows = received.rows
    assert rows.first == decoded.first_offset
    assert rows.messages() == decoded.messages
    assert rows.count == len(decoded.messages)
    assert rows.payload_bytes == sum(len(each.payload) for each in decoded.messages)
    assert [rows.offset_of(at) for at in range(rows.count)] == [
        each.offset for each in decoded.messages
    ]


@pytest.mark.parametrize("layout", ["skipscan", "bitmask"])
async def test_a_store_takes_rows_as_it_takes_messages(layout: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    found = []
    known = KnownTopics()
    value = [encode(batch_of(chance, 3_000)) for _ in range(3)]
    for name in ("messages", "rows"):
        store = RocksDatabase.open(tmp_path / name, config=RocksdbConfig(layout=layout))
        for each in value:
            batch = decode(each, store.offsets, TIME_US)
            batch.operations = []
            if name == "rows":
                received = Received()
                assert receive(each, received, batch.first_offset, known, anybody) >= 0
                batch.rows, batch.messages = received.rows, []
            store.apply(batch)
        store.close()
        store = RocksDatabase.open(tmp_path / name, config=RocksdbConfig(layout=layout))
        current = store.generations()[-1]
        found.append((await read_all(store, "#"), current.message_count, store.last_offset))
        store.close()
    assert found[0] == found[1]
    assert len(found[0][0]) >= 9_000


def test_who_speaks_for_the_same_owner_is_not_asked_again() -> None:
    batch = Batch()
    batch.speak("c", epoch=-3)
    batch.append(message("t", b"1", publisher="c"))
    batch.put_cursor("d", Cursor(offset=7), epoch=4)
    batch.put_awaiting_release("d", 9, epoch=4)
    batch.delete_awaiting_release("d", 8, epoch=4)
    value = encode(batch)
    received = received_of(value)
    assert received is not None
    first = list(received.operations)
    (speak,) = [each for each in first if isinstance(each, Speak)]
    assert (speak.client_id, speak.epoch) == ("c", -3)
    assert receive(value, received, 2, KnownTopics(), anybody) == 1
    assert [type(each) for each in received.operations[len(first) :]] == [
        type(each) for each in first if not isinstance(each, Speak)
    ]
    assert received.rows.offsets == [1, 2]


def test_who_speaks_for_another_owner_is_decoded() -> None:
    batch = Batch()
    batch.speak("c", epoch=4)
    batch.append(message("t", b"1", publisher="c"))
    assert received_of(encode(batch)) is None


@pytest.mark.parametrize("seed", range(5))
def test_of_what_has_to_be_decoded_nothing_is_left(seed: int) -> None:
    """Wherever that is found, what was received before it stays as it was."""
    chance = random.Random(seed)
    batch = batch_of(chance, 20)
    batch.put_cursor("d", Cursor(offset=7), epoch=4)
    batch.put_awaiting_release("e", 9, epoch=4)
    received = received_of(encode(batch))
    assert received is not None
    rows = received.rows

    def held() -> list[object]:
        return [
            *(rows.first, rows.count, rows.payload_bytes),
            *(rows.topics[:], rows.values[:], rows.offsets[:]),
            *(received.operations[:], received.cursors.copy(), received.spoken.copy()),
        ]

    before = held()
    batch.speak("f", epoch=4)
    batch.put_cursor("d", Cursor(offset=8), epoch=4)
    batch.discard_group("g")  # the last one, which looks at what others do
    value = encode(batch)
    for broken in (value, value[:-1], value[:100]):
        assert receive(broken, received, 1_000, KnownTopics(), anybody) == -1
        assert held() == before


def test_of_the_cursors_of_an_owner_the_last_one_is_left() -> None:
    cursors = [Cursor(7, 5, (7, 9), (8,), 9), Cursor(1 << 40, 5), Cursor(3, 2, (), (4, 5), 5)]
    batch = Batch()
    for at, (client_id, epoch) in enumerate([("d", 4), ("Ä", -5), ("d", 4), ("d", 5)]):
        batch.put_cursor(client_id, cursors[at % 3], epoch=epoch)
    received = received_of(encode(batch))
    assert received is not None
    assert not received.operations
    left = cursors_of(received.cursors)
    assert all(isinstance(each, PutCursor) for each in left)
    assert [(each.client_id, each.epoch, each.cursor) for each in left] == [  # type: ignore[attr-defined]
        ("d", 4, cursors[2]),
        ("Ä", -5, cursors[1]),
        ("d", 5, cursors[0]),
    ]


@pytest.mark.parametrize("at", range(5 + 10 + 1 + 33 + 8))
def test_a_cursor_that_is_none_is_found_where_it_stands(at: int) -> None:
    """Whatever byte is wrong: it is the cursor of somebody else, or the batch says what is wrong;
    nothing is left for later."""
    batch = Batch()
    batch.put_cursor("d", Cursor(7, 5, (7,), (8,), 9), epoch=4)
    value = bytearray(encode(batch))
    value[-(5 + 10 + 1 + 33 + 8) + at] ^= 0x81
    received = received_of(bytes(value))
    try:
        expected = decode(bytes(value), Offsets(), TIME_US).operations
    except StorageError:
        assert received is None
        return
    if received is not None:
        found = received.operations + cursors_of(received.cursors)
        assert [type(each) for each in found] == [type(each) for each in expected]


def test_what_does_more_is_decoded() -> None:
    kept = message("t", b"kept", publisher="c")
    retains, passes, claims, places = Batch(), Batch(), Batch(), Batch()
    retains.append(kept)
    retains.put_retained(kept)
    passes.pass_on(message("t", b"x", qos=0, publisher="c"))
    claims.claim_session(record("c", 9), seen=4)
    places.place(entry(0, group_key="g/t"))
    for batch in (retains, passes, claims, places):
        assert received_of(encode(batch)) is None


def test_what_is_cut_short_or_of_a_later_release_is_decoded() -> None:
    """That finds what is wrong: nothing that is broken becomes a row."""
    value = encode(batch_of(random.Random(3), 100))
    for length in range(len(value)):
        received = received_of(value[:length])
        # Where an operation ends the batch may end, too.
        assert received is None or received.rows.count == len(decode(value, Offsets(), 1).messages)
    assert received_of(b"\x02" + value[1:]) is None
    single = Batch()
    single.append(message("t", b"x"))
    value = encode(single)
    at = value.index(b"\x00\x01t") + 3 + 4
    assert received_of(value) is not None
    assert received_of(value[:at] + b"\x03" + value[at + 1 :]) is None, "a later kind of row"
    long = value[: at + 10] + b"\xff\xff" + value[at + 12 :]
    assert received_of(long) is None, "a publisher that is longer than the row"
