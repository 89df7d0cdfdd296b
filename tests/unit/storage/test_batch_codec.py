"""A batch comes back as it was; its bytes are in ``tests/golden/batch.jsonl``.

Each line of the golden file is a name and the bytes of one batch, written by the release that
introduced the format: a release that cannot read them cannot read a log that others wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import BackfillProgress, Cursor, GroupRecord, InboxEntry, Subscription, Will
from perdure.storage.batch import Batch, give_offsets
from perdure.storage.batch_codec import decode, encode, placed_at
from perdure.storage.offsets import Offsets
from perdure.storage.operations import DeleteGroupEntry, PutRetained
from tests.contract.values import NOW_US, entry, message, record
from tests.unit.storage.recorder import told
from tests.unit.storage.test_codec import ENTRIES, MESSAGES, OFFSETS, TEXTS

GOLDEN = Path(__file__).parents[2] / "golden" / "batch.jsonl"
EPOCHS = st.integers(0, 2**62)
CURSORS = st.builds(
    lambda offset, serial, settled: Cursor(
        offset, serial, tuple(serial + step for step in sorted(settled)), (), serial + 9
    ),
    OFFSETS,
    st.integers(0, 2**40),
    st.sets(st.integers(1, 2**31), max_size=9),
)
SUBS = st.builds(Subscription, TEXTS, TEXTS, st.integers(0, 2), since_offset=OFFSETS)

_Call = tuple[str, tuple[object, ...], dict[str, int]]


def _calls(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[_Call]:
    return st.tuples(st.just(name), st.tuples(*arguments), st.just({}))


def _of_owner(name: str, argument: st.SearchStrategy[object]) -> st.SearchStrategy[_Call]:
    epochs = st.fixed_dictionaries({"epoch": EPOCHS})
    return st.tuples(st.just(name), st.tuples(TEXTS, argument), epochs)


CALLS = st.one_of(
    _calls("append", MESSAGES),
    st.tuples(
        st.just("speak"),
        st.tuples(TEXTS),
        st.fixed_dictionaries({"epoch": st.integers(-(2**63), 2**63 - 1)}),
    ),
    _calls("put_session", st.builds(record, TEXTS, EPOCHS)),
    st.tuples(
        st.just("claim_session"),
        st.tuples(st.builds(record, TEXTS, EPOCHS)),
        st.fixed_dictionaries({"seen": EPOCHS}),
    ),
    _calls("discard_session", TEXTS.filter(bool)),
    _of_owner("put_cursor", CURSORS),
    _of_owner("put_subscription", SUBS),
    _of_owner("delete_subscription", SUBS),
    _of_owner("put_awaiting_release", st.integers(1, 65_535)),
    _of_owner("delete_awaiting_release", st.integers(1, 65_535)),
    _of_owner("put_inbox", ENTRIES),
    _of_owner("put_tombstone", ENTRIES),
    _of_owner("trim_inbox", OFFSETS),
    _calls("put_group", st.builds(GroupRecord, TEXTS, TEXTS, OFFSETS, OFFSETS)),
    _calls("discard_group", TEXTS),
    _calls("put_group_member", TEXTS, TEXTS),
    _calls("delete_group_member", TEXTS, TEXTS),
    _calls("put_group_entry", TEXTS, ENTRIES),
    _calls("delete_group_entry", TEXTS, ENTRIES),
    _calls("put_retained", MESSAGES.filter(lambda message: message.offset > 0)),
    _calls("delete_retained", TEXTS),
)


def decoded(value: bytes) -> Batch:
    return decode(value, Offsets(), NOW_US)


def sequenced(batch: Batch) -> Batch:
    """A batch that has entered an empty log."""
    give_offsets(batch, Offsets(), NOW_US)
    return batch


@given(st.lists(CALLS, max_size=30))
def test_a_batch_comes_back_as_it_was(calls: list[_Call]) -> None:
    batch = Batch()
    for name, arguments, options in calls:
        getattr(batch, name)(*arguments, **options)
    found = decoded(encode(batch))
    assert told(found) == told(sequenced(batch))
    assert found.messages == batch.messages
    assert encode(found) == encode(batch)


def test_messages_that_are_alike_are_one_row() -> None:
    alone, burst = Batch(), Batch()
    alone.append(message(payload=b"x" * 9))
    burst.extend([message(payload=b"x" * 9) for _ in range(9)])
    assert len(encode(burst)) < len(encode(alone)) + 8 * 13 + 9
    assert [found.offset - NOW_US for found in decoded(encode(burst)).messages] == list(range(9))


def test_what_a_group_gives_in_one_step_is_told_entry_by_entry() -> None:
    together, apart = Batch(), Batch()
    entries = [entry(0, b"%d" % number, group_key="g/a") for number in range(3)]
    for batch in (together, apart):
        batch.place_run(entries)
    together.put_group_run("g/a", entries)
    together.delete_group_run("g/a", entries)
    for each in entries:
        apart.put_group_entry("g/a", each)
    for each in entries:
        apart.delete_group_entry("g/a", each)
    assert encode(together) == encode(apart)


def test_a_retained_message_of_the_batch_is_in_it_once() -> None:
    """And it is the message: what the log gives to one, the other has."""
    batch = Batch()
    sent = message(payload=b"x" * 500, retain=True)
    batch.append(sent)
    batch.put_retained(sent)
    value = encode(batch)
    assert len(value) < 600
    found = decode(value, Offsets(), 70)
    (retained,) = found.operations
    assert isinstance(retained, PutRetained)
    assert retained.message is found.messages[0]
    assert found.messages[0].offset == 70


def test_an_entry_may_have_been_placed_in_an_earlier_batch() -> None:
    """The log gives it an offset while the batch that names it is on its way."""
    batches = [Batch() for _ in range(3)]
    entries = [entry(0, b"%d" % number) for number in range(3)]
    for batch, own in zip(batches, entries, strict=True):
        batch.append(message())
        batch.place(entry(0))
        batch.place(own)
    for own in entries:
        batches[2].delete_group_entry("g/a", own)
    values = [encode(batch, batches[:number]) for number, batch in enumerate(batches)]
    offsets = Offsets()
    found: list[Batch] = []
    for number, value in enumerate(values):
        earlier = [placed_at(batch) for batch in reversed(found)]
        found.append(decode(value, offsets, NOW_US + 100 * number, earlier))
    assert [batch.last_offset - NOW_US for batch in found] == [2, 102, 202]
    deleted = [op.entry.offset for op in found[2].operations if isinstance(op, DeleteGroupEntry)]
    assert deleted == [NOW_US + 2, NOW_US + 102, NOW_US + 202]


def everything() -> Batch:
    """One of each operation."""
    batch = Batch()
    retained = message("r/1", b"kept", retain=True)
    sent = [message("a/b", b"1"), message("a/b", b"22"), message("ü", b"", qos=2), retained]
    sent[2].properties, sent[2].expires_at_us = b"\x01\x01", NOW_US
    batch.extend(sent)
    will = Will("w", b"\x00", 2, True, b"\x01\x01", 5, None)
    batch.put_session(record("client/ü", 7, will=will, will_at_us=NOW_US, username="u"))
    batch.put_cursor("client/ü", Cursor(NOW_US, 70_000, (70_002,), (70_003,), 70_009), epoch=7)
    backfilled = Subscription(
        "b", since_offset=NOW_US, backfill=BackfillProgress(True, "b/x", NOW_US + 1, NOW_US)
    )
    batch.put_subscription("client/ü", backfilled, epoch=7)
    batch.delete_subscription("client/ü", Subscription("a/#", "g", 2, True), epoch=7)
    batch.put_awaiting_release("client/ü", 65_535, epoch=7)
    batch.delete_awaiting_release("client/ü", 1, epoch=7)
    batch.put_inbox("client/ü", entry(NOW_US + 9, retain=True, identifiers=(1, 2)), epoch=7)
    batch.put_inbox("client/ü", InboxEntry(NOW_US + 10, None, qos=1, serial=8), epoch=7)
    placed = entry(0, b"placed", group_key="g/a/#", serial=9)
    batch.place(entry(0))
    batch.place(placed)
    batch.put_inbox("client/ü", placed, epoch=7)
    batch.put_tombstone("client/ü", placed, epoch=7)
    batch.trim_inbox("client/ü", NOW_US + 9, epoch=7)
    batch.discard_session("gone")
    batch.put_group(GroupRecord("g", "a/#", NOW_US, NOW_US))
    batch.put_group_member("g/a/#", "client/ü")
    batch.delete_group_member("g/a/#", "gone")
    batch.put_group_entry("g/a/#", entry(NOW_US + 11, group_key="g/a/#"))
    batch.delete_group_entry("g/a/#", placed)
    batch.discard_group("h/b")
    batch.put_retained(retained)
    batch.put_retained(message("r/2", b"older", offset=3))
    unrecorded = message("r/4", b"placed", qos=0)
    batch.place(unrecorded)
    batch.put_retained(unrecorded)
    batch.delete_retained("r/3", publisher="client/ü")
    return batch


def claim() -> Batch:
    """A session taken over from the owner that was read."""
    batch = Batch()
    batch.claim_session(record("client/ü", 9), seen=7)
    return batch


def for_others() -> Batch:
    """What a session's owner says to the other nodes, and how it ends."""
    batch = Batch()
    batch.append(message("a/b", b"1", publisher="client/ü"))
    batch.speak("client/ü", epoch=9)
    batch.pass_on(message("a/c", b"2", qos=0, publisher="client/ü"))
    back = entry(NOW_US + 12, group_key="g/a/#")
    batch.speak("client/ü", epoch=10)
    batch.put_group_entry("g/a/#", back, client_id="client/ü", epoch=9)
    batch.put_group(GroupRecord("g", "a/#", NOW_US, NOW_US, turn=3, node="n1"), seen=2)
    batch.pass_share("c2", entry(0, b"2", group_key="g/a/#", identifiers=(3,)), epoch=4)
    batch.return_unseen("client/ü", NOW_US + 12, epoch=9)
    batch.discard_session("client/ü", epoch=9)
    batch.dismiss("c2", epoch=4, ends=True)
    batch.echo("n2", "n1", -7)
    return batch


GOLD: dict[str, Callable[[], Batch]] = {
    "everything": everything,
    "empty": lambda: Batch(),
    "claim": claim,
    "for others": for_others,
}


def test_this_release_writes_what_it_wrote() -> None:
    lines = [json.dumps([name, encode(make()).hex()]) for name, make in GOLD.items()]
    if not GOLDEN.exists():
        GOLDEN.write_text("\n".join(lines) + "\n")
        pytest.fail(f"{GOLDEN} was not there: look at it, then commit it")
    assert lines == GOLDEN.read_text().splitlines()


def test_this_release_reads_what_was_written() -> None:
    for line in GOLDEN.read_text().splitlines():
        name, value = json.loads(line)
        found, expected = decoded(bytes.fromhex(value)), sequenced(GOLD[name]())
        assert told(found) == told(expected)
        assert found.messages == expected.messages


def test_each_kind_of_operation_is_in_the_golden_file() -> None:
    operations = [operation for make in GOLD.values() for operation in make().operations]
    kinds = {type(operation).__name__ for operation in operations}
    assert len(kinds) == 25


def test_bytes_that_are_no_batch_are_refused() -> None:
    value = encode(everything())
    with pytest.raises(FormatTooNew):
        decoded(b"\x02" + value[1:])
    with pytest.raises(StorageCorrupt):
        decoded(b"\x00" + value[1:])
    whole = len(encode(GOLD["empty"]()))
    for length in range(len(value)):
        try:
            found = decoded(value[:length])
        except StorageCorrupt:
            continue
        # Operations end where one ends: what is cut there is a shorter batch.
        assert length >= whole
        assert told(found) == told(decoded(value))[: len(found.operations)]
    with pytest.raises(FormatTooNew, match="operation of kind 99"):
        decoded(encode(GOLD["empty"]()) + bytes([99, 0, 0, 0, 0]))


@pytest.mark.parametrize(
    "epoch", [0, 1, -1, (1 << 32) + 7, -(1 << 32) - 7, (1 << 63) - 1, -1 << 63]
)
def test_any_epoch_is_read(epoch: int) -> None:
    batch = Batch()
    batch.speak("c", epoch=epoch)
    (speak,) = decode(encode(batch), Offsets(), 1).operations
    assert (speak.client_id, speak.epoch) == ("c", epoch)
