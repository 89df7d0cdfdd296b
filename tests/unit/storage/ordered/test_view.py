"""Records that come together are applied in one write, and leave what they leave one by one."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from perdure.errors import LogTruncated, StorageFull
from perdure.model import Cursor
from perdure.storage.batch import Batch
from perdure.storage.batch_codec import encode
from perdure.storage.memory import MemoryDatabase
from perdure.storage.notes import LOG_IDENTITY, Note
from perdure.storage.ordered.contract import LogRecord
from perdure.storage.ordered.digest import digest
from perdure.storage.ordered.record import (
    Begin,
    Join,
    Leave,
    Record,
    decode_record,
    encode_record,
)
from perdure.storage.ordered.view import PAGE_BYTES_MAX, PAGE_MAX, Applied, View
from perdure.storage.peer_operations import Speak
from tests.contract.values import entry, message, record

NODES: Final = ("n1", "n2")
CLIENTS: Final = ("c1", "c2", "c3")
TIME_US: Final = 1_700_000_000_000_000


class StrainedDatabase(MemoryDatabase):
    """Takes so many writes and refuses one."""

    writes_left = 100

    def apply(self, batch: Batch, notes: Sequence[Note] = ()) -> None:
        """Apply, or refuse it."""
        self.writes_left -= 1
        if self.writes_left < 0:
            raise StorageFull("no room")
        super().apply(batch, notes)


class Log:
    """Records as nodes submit them."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.entries: list[LogRecord] = []
        self.numbers = dict.fromkeys(NODES, 0)
        self.payloads = 0
        for name in NODES:
            self.submit(name, acts=(Join(1),))
        batch = Batch()
        for client_id in CLIENTS:
            batch.put_session(record(client_id, 4))
        self.submit("n1", batch)
        self.begun = len(self.entries)

    def submit(self, node: str, batch: Batch | None = None, **parts: object) -> None:
        """The next record of a node."""
        self.numbers[node] += 1
        value = b"" if batch is None else encode(batch)
        made = Record(node, 7, self.numbers[node], batch=value)._replace(**parts)
        time_us = TIME_US + len(self.entries) * self.chance.choice((0, 1, 5_000))
        self.entries.append(LogRecord(len(self.entries), time_us, encode_record(made)))

    def said(self, client_id: str, epoch: int, count: int = 1) -> Batch:
        """A batch in which somebody publishes."""
        batch = Batch()
        batch.speak(client_id, epoch=epoch)
        for _ in range(count):
            self.payloads += 1
            payload = b"%d" % self.payloads
            if self.chance.random() < 0.3:
                batch.pass_on(message("t", payload, qos=0, publisher=client_id))
            else:
                batch.append(message("t", payload, publisher=client_id))
        return batch

    def any(self) -> None:
        """Anything."""
        chance, node, client_id = (
            self.chance,
            self.chance.choice(NODES),
            self.chance.choice(CLIENTS),
        )
        kind, epoch = chance.randrange(10), chance.randrange(3, 6)
        batch = self.said(client_id, epoch, chance.randrange(1, 4))
        if kind == 0:
            batch = Batch()
            batch.put_session(record(client_id, epoch))
        elif kind == 1:
            kept = message("r", b"%d" % self.payloads, publisher=client_id)
            batch.append(kept)
            batch.put_retained(kept)
        elif kind == 2:
            placed = entry(0, group_key="g/t")
            batch.place(placed)
            batch.put_inbox(client_id, placed, epoch=epoch)
        elif kind == 3:
            for offset in range(self.payloads, self.payloads + self.chance.randrange(1, 4)):
                batch.put_cursor(client_id, Cursor(offset=offset), epoch=epoch)
            batch.put_awaiting_release(client_id, 9, epoch=epoch)
        elif kind == 4:
            value = encode(batch)
            self.submit(node, batch=None, more=True)
            self.entries[-1] = self.entries[-1]._replace(
                value=encode_record(decode_record(self.entries[-1].value)._replace(batch=value[:9]))
            )
            self.submit(node)
            self.entries[-1] = self.entries[-1]._replace(
                value=encode_record(decode_record(self.entries[-1].value)._replace(batch=value[9:]))
            )
            return
        elif kind == 5:
            self.submit(node)
            return
        self.submit(node, batch)


def told(found: list[Applied]) -> list[tuple[int, bytes]]:
    """What is dispatched of what was applied, in order."""
    said: list[tuple[int, bytes]] = []
    for applied in found:
        if applied.batch is None:
            continue
        taken, messages = 0, applied.batch.recorded()
        for each in applied.batch.operations:
            if type(each).__name__ == "PassMessage":
                after: int = each.after  # type: ignore[attr-defined]
                said += [(one.offset, one.payload) for one in messages[taken:after]]
                taken = max(taken, after)
                said.append((0, each.message.payload))  # type: ignore[attr-defined]
        said += [(one.offset, one.payload) for one in messages[taken:]]
    return said


def one_by_one(view: View, entries: list[LogRecord]) -> list[Applied]:
    return [view.apply(each, decode_record(each.value)) for each in entries]


def gathered(view: View, entries: list[LogRecord]) -> list[Applied]:
    found: list[Applied] = []
    for each in entries:
        view.gather(each, decode_record(each.value), found)
    return found + view.flush()


def writes_of(view: View, log: Log) -> list[int]:
    """How much each record behind the log's beginning has had applied."""
    gathered(view, log.entries[: log.begun])
    found: list[int] = []
    for each in log.entries[log.begun :]:
        done: list[Applied] = []
        view.gather(each, decode_record(each.value), done)
        found.append(len(done))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_pages_leave_what_single_records_leave(seed: int) -> None:
    """Also where a write fails, or the process dies: then it goes on behind what it has written."""
    log = Log(seed)
    for _ in range(80):
        log.any()
    single, paged = MemoryDatabase(), StrainedDatabase()
    expected = {each.record: told([each]) for each in one_by_one(View(single), log.entries)}
    view = View(paged)
    order = [decode_record(each.value) for each in log.entries]
    while view.position < len(order):
        begun = view.position
        stop = begun + log.chance.randrange(1, 20)
        paged.writes_left = log.chance.choice((0, 1, 2, 3, 100, 100))
        found: list[Applied] = []
        with contextlib.suppress(StorageFull):
            for entry_ in log.entries[begun:stop]:
                view.gather(entry_, decode_record(entry_.value), found)
            found += view.flush()
        if paged.writes_left < 0 or log.chance.random() < 0.3:
            view = View(paged)
        assert told(found) == [
            one for each in order[begun : view.position] for one in expected[each]
        ]
    assert asyncio.run(digest(paged)) == asyncio.run(digest(single))
    assert paged.notes() == single.notes()
    assert paged.last_offset == single.last_offset


def test_what_comes_together_is_one_write() -> None:
    log = Log()
    for number in range(30):
        log.submit(NODES[number % 2], log.said(CLIENTS[number % 3], 4))
        if not number % 10:
            log.submit(NODES[1])  # it lives
    store = StrainedDatabase()
    view = View(store)
    gathered(view, log.entries[: log.begun])
    store.writes_left = 1
    (page,) = gathered(view, log.entries[log.begun :])
    assert store.writes_left == 0
    assert page.batch is not None
    assert len(told([page])) == 30
    spoken = [each.client_id for each in page.batch.operations if isinstance(each, Speak)]
    assert sorted(spoken) == sorted(CLIENTS), "each says once for whom it speaks"


def test_signs_of_life_are_no_batch() -> None:
    log = Log()
    for node in NODES * 2:
        log.submit(node)
    store = StrainedDatabase()
    view = View(store)
    gathered(view, log.entries[: log.begun])
    store.writes_left = 1
    (page,) = gathered(view, log.entries[log.begun :])
    assert page.batch is None
    assert view.position == len(log.entries)
    assert View(store).position == view.position


def test_a_page_ends_before_what_looks_at_it_and_when_it_is_large() -> None:
    log = Log()
    log.submit("n1", log.said("c1", 4))
    log.submit("n2", log.said("c2", 4))
    claim = Batch()
    claim.claim_session(record("c1", 9), seen=4)
    log.submit("n1", claim)
    log.submit("n2", log.said("c1", 4))
    for _ in range(3):
        log.submit("n1", log.said("c2", 4, PAGE_MAX))
    log.submit("n2", acts=(Leave(),))
    view = View(MemoryDatabase())
    # The claim is not gathered, and neither is the end of a node; a full page does not wait.
    assert writes_of(view, log) == [0, 0, 2, 0, 1, 1, 1, 1]
    assert view.flush() == []


@pytest.mark.parametrize("is_decoded", [False, True])
def test_a_page_of_large_messages_ends_sooner(is_decoded: bool) -> None:
    """Whether its messages are rows or were decoded."""
    log = Log()
    for number in range(6):
        batch = Batch()
        batch.speak("c1", epoch=4)
        batch.append(message("t", bytes(PAGE_BYTES_MAX // 4), publisher="c1"))
        if is_decoded:
            batch.pass_on(message("t", b"%d" % number, qos=0, publisher="c1"))
        log.submit("n1", batch)
    view = View(MemoryDatabase())
    assert writes_of(view, log) == [0, 0, 0, 1, 0, 0]
    assert len(view.flush()) == 1


def began(base: int, database: str) -> LogRecord:
    """The first record of a log."""
    made = Record("n1", 7, 1, (Join(1), Begin(base, database)))
    return LogRecord(0, TIME_US, encode_record(made))


def used() -> MemoryDatabase:
    """A store that had something before it came to a log."""
    database = MemoryDatabase()
    batch = Batch()
    batch.append(message("t", b"before"))
    database.submit(batch, TIME_US)
    return database


def begin(store: MemoryDatabase, database: str, entry: LogRecord) -> View:
    """A node with that store reads the first record."""
    view = View(store, database)
    view.apply(entry, decode_record(entry.value))
    return view


def test_the_first_node_says_what_the_log_is_called_for_all() -> None:
    first, late = MemoryDatabase(), MemoryDatabase()
    assert begin(first, "one", began(0, "one")).identity == "one"
    view = begin(late, "two", began(0, "one"))
    second = Record("n2", 9, 1, (Join(1), Begin(0, "two")))
    view.apply(LogRecord(1, TIME_US, encode_record(second)), second)
    assert view.identity == "one"
    assert View(late, "two").identity == "one", "it is remembered"
    assert dict(late.notes())[LOG_IDENTITY] == b"one"


def test_who_has_the_state_that_the_log_began_with_goes_on() -> None:
    base = used().last_offset
    assert base
    assert begin(used(), "one", began(base, "one")).identity == "one"


@pytest.mark.parametrize(
    ("store", "database", "entry"),
    [
        (MemoryDatabase, "two", began(5, "one")),
        (used, "two", began(used().last_offset, "one")),
        (used, "one", began(used().last_offset - 1, "one")),
        (used, "two", began(0, "one")),
    ],
    ids=["empty", "another", "older", "its own state"],
)
def test_who_lacks_what_the_log_began_with_stops(
    store: Callable[[], MemoryDatabase], database: str, entry: LogRecord
) -> None:
    """Nodes that begin with different states would differ for good, and nobody would see it."""
    made = store()
    before = made.notes(), made.last_offset
    with pytest.raises(LogTruncated) as refused:
        begin(made, database, entry)
    assert refused.value.hint
    assert (made.notes(), made.last_offset) == before, "nothing was taken over"


def test_a_store_that_begins_another_log_keeps_what_it_is_called() -> None:
    """Its readers go on: streams and archives of the log that was lost."""
    store = used()
    begin(store, "two", began(store.last_offset, "two"))
    store.apply(Batch(), [(key, None) for key, _ in store.notes() if key != LOG_IDENTITY])
    view = View(store, "three")
    assert (view.position, view.identity, view.database) == (0, "", "two")
    assert view.base == store.last_offset
    view.apply(began(view.base, "two"), decode_record(began(view.base, "two").value))
    assert View(store, "three").identity == "two"


def test_of_each_client_a_page_has_the_last_cursor() -> None:
    log = Log()
    for number in range(30):
        batch = Batch()
        batch.put_cursor(CLIENTS[number % 3], Cursor(offset=number), epoch=4)
        log.submit(NODES[number % 2], batch)
    view = View(MemoryDatabase())
    page = gathered(view, log.entries)[-1]
    assert page.batch is not None
    assert [each.cursor.offset for each in page.batch.operations] == [27, 28, 29]  # type: ignore[attr-defined]
