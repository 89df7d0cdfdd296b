"""The RocksDB store against the reference, over any order of writes, restarts and rotations."""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor, GroupRecord, InboxEntry, Subscription
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.memory import MemoryDatabase
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, message, record
from tests.support.earlier_layout import earlier_layout

T = TypeVar("T")

CLIENT_IDS = ["a", "ab", "ä", "a/b"]
CLIENTS = st.sampled_from(CLIENT_IDS)
LEVELS = ["", "a", "b", "c", "d", "$x"]
TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3).map("/".join).filter(bool)
FILTERS = (
    st.tuples(st.lists(st.sampled_from([*LEVELS, "+"]), max_size=3), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0]))
    .filter(bool)
)
GROUPS = st.sampled_from(["g/a", "g/a/#", "h/a"])
EPOCHS = st.integers(1, 4)
SMALL = st.integers(0, 40)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, as an embedded store promises."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("an embedded store suspended")


def all_sessions(database: Database) -> list[str]:
    async def collect() -> list[str]:
        return [found.client_id async for found in database.sessions()]

    return run(collect())


class StoreMachine(RuleBasedStateMachine):
    """Both stores get the same calls; every read of them must be equal."""

    config: ClassVar[RocksdbConfig] = RocksdbConfig()

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.path = Path(self._directory.name) / "data"
        self.model: MemoryDatabase = MemoryDatabase()
        self.store: RocksDatabase
        self.batches: list[tuple[Batch, Batch]] = []
        self.now_us = NOW_US

    @initialize()
    def start(self) -> None:
        self.store = self.first()
        self.begin()
        # Later offsets of inboxes and retained messages are small numbers: below the last one.
        self.append(["first"], 0, 0)
        self.write(0)

    def first(self) -> RocksDatabase:
        """The store as it begins."""
        return RocksDatabase.open(self.path, config=self.config, now_us=0)

    def teardown(self) -> None:
        self.store.close()
        self._directory.cleanup()

    @precondition(lambda self: len(self.batches) < 3)
    @rule()
    def begin(self) -> None:
        self.batches.append((Batch(), Batch()))

    @rule(turn=st.integers(0, 2))
    def write(self, turn: int) -> None:
        expected, batch = self.batches.pop(turn % len(self.batches))
        self.model.submit(expected, self.now_us)
        self.store.submit(batch, self.now_us)
        assert batch.is_sequenced
        assert batch.first_offset == expected.first_offset
        places = [
            [each.operations.index(operation) for operation in each.refused]
            for each in (expected, batch)
        ]
        assert places[0] == places[1]
        assert [m.offset for m in batch.messages] == [m.offset for m in expected.messages]
        if not self.batches:
            self.begin()

    @rule()
    def restart(self) -> None:
        for _ in list(self.batches):
            self.write(0)
        self.store.close()
        self.store = RocksDatabase.open(self.path, config=self.config, now_us=0)
        self.model = self.model.reopened()
        self.batches = []
        self.begin()

    @rule()
    def rotate(self) -> None:
        self.now_us += 50
        expected, found = self.model.rotate(self.now_us), self.store.rotate(self.now_us)
        assert found.since_offset == expected.since_offset

    @rule(turn=SMALL)
    def drop(self, turn: int) -> None:
        generations = [info.generation for info in self.model.generations()[:-1]]
        if generations:
            number = generations[turn % len(generations)]
            self.model.drop_generation(number)
            self.store.drop_generation(number)

    # -- the log ---------------------------------------------------------------------------

    @rule(topics=st.lists(TOPICS, min_size=1, max_size=6), ahead=SMALL, turn=st.integers(0, 2))
    def append(self, topics: list[str], ahead: int, turn: int) -> None:
        expected, batch = self.batches[turn % len(self.batches)]
        self.now_us += ahead
        for topic in topics:
            value = message(topic, topic.encode() * ahead, expires_at_us=ahead % 3)
            expected.append(value)
            batch.append(message(topic, topic.encode() * ahead, expires_at_us=ahead % 3))

    @rule(
        filters=st.lists(FILTERS, min_size=1, max_size=3),
        back=st.integers(0, 300),
        until=st.integers(-1, 300),
        limit=st.integers(1, 50),
        bytes_max=st.sampled_from([0, 0, 50]),
    )
    def read(self, filters: list[str], back: int, until: int, limit: int, bytes_max: int) -> None:
        after = self.model.last_offset - back
        bounds = {
            "after_offset": after,
            "until_offset": after + until if until >= 0 else self.model.last_offset,
            "limit": limit,
        }
        expected = run(self.model.read(filters, bytes_max=bytes_max, **bounds))
        assert run(self.store.read(filters, bytes_max=bytes_max, **bounds)) == expected
        assert run(self.store.count(filters, **bounds)) == run(self.model.count(filters, **bounds))

    @rule(back=st.integers(0, 300))
    def estimate(self, back: int) -> None:
        after = self.model.last_offset - back
        assert self.store.messages_after(after) >= self.model.messages_after(after)

    # -- sessions --------------------------------------------------------------------------

    def on_batch(self, turn: int, name: str, *arguments: object, **options: object) -> None:
        """Call both batches; what of it is fenced is seen when they are written."""
        for batch in self.batches[turn % len(self.batches)]:
            getattr(batch, name)(*arguments, **options)

    @rule(client_id=CLIENTS, epoch=EPOCHS, due=SMALL, turn=st.integers(0, 2))
    def put_session(self, client_id: str, epoch: int, due: int, turn: int) -> None:
        self.on_batch(turn, "put_session", record(client_id, epoch, expires_at_us=due))

    @rule(client_id=CLIENTS, turn=st.integers(0, 2))
    def discard_session(self, client_id: str, turn: int) -> None:
        self.on_batch(turn, "discard_session", client_id)

    @rule(client_id=CLIENTS, epoch=EPOCHS, serial=SMALL, turn=st.integers(0, 2))
    def put_cursor(self, client_id: str, epoch: int, serial: int, turn: int) -> None:
        settled = tuple(range(serial + 2, serial + 2 + serial % 4, 2))
        cursor = Cursor(serial, serial, settled, settled[:1], serial + 9)
        self.on_batch(turn, "put_cursor", client_id, cursor, epoch=epoch)

    @rule(
        client_id=CLIENTS,
        epoch=EPOCHS,
        topic_filter=FILTERS,
        since=st.integers(0, 3),
        is_put=st.booleans(),
        turn=st.integers(0, 2),
    )
    def subscription(
        self,
        client_id: str,
        epoch: int,
        topic_filter: str,
        since: int,
        is_put: bool,
        turn: int,
    ) -> None:
        name = "put_subscription" if is_put else "delete_subscription"
        sub = Subscription(topic_filter, qos=epoch % 3, since_offset=since)
        self.on_batch(turn, name, client_id, sub, epoch=epoch)

    @rule(
        client_id=CLIENTS,
        epoch=EPOCHS,
        packet_id=st.integers(1, 5),
        is_put=st.booleans(),
        turn=st.integers(0, 2),
    )
    def awaiting_release(
        self, client_id: str, epoch: int, packet_id: int, is_put: bool, turn: int
    ) -> None:
        name = "put_awaiting_release" if is_put else "delete_awaiting_release"
        self.on_batch(turn, name, client_id, packet_id, epoch=epoch)

    @rule(client_id=CLIENTS, epoch=EPOCHS, offset=SMALL, turn=st.integers(0, 2))
    def put_inbox(self, client_id: str, epoch: int, offset: int, turn: int) -> None:
        value = message("t", b"i", offset=offset) if offset % 5 else None
        entry = InboxEntry(offset, value, qos=1, identifiers=(offset,))
        self.on_batch(turn, "put_inbox", client_id, entry, epoch=epoch)

    @rule(client_id=CLIENTS, epoch=EPOCHS, is_buried=st.booleans(), turn=st.integers(0, 2))
    def place(self, client_id: str, epoch: int, is_buried: bool, turn: int) -> None:
        for batch in self.batches[turn % len(self.batches)]:
            entry = InboxEntry(0, message("t", b"placed"), qos=1)
            batch.place(entry)
            batch.put_inbox(client_id, entry, epoch=epoch)
            batch.put_group_entry("g/a", entry)
            if is_buried:
                batch.put_tombstone(client_id, entry, epoch=epoch)

    @rule(client_id=CLIENTS, epoch=EPOCHS, through=SMALL, turn=st.integers(0, 2))
    def trim_inbox(self, client_id: str, epoch: int, through: int, turn: int) -> None:
        self.on_batch(turn, "trim_inbox", client_id, through, epoch=epoch)

    @rule(group_key=GROUPS, offset=SMALL, turn=st.integers(0, 2))
    def group(self, group_key: str, offset: int, turn: int) -> None:
        name, _, topic_filter = group_key.partition("/")
        self.on_batch(turn, "put_group", GroupRecord(name, topic_filter, offset, 0))
        self.on_batch(turn, "put_group_member", group_key, f"m{offset % 4}")
        self.on_batch(turn, "delete_group_member", group_key, f"m{offset % 3}")
        entry = InboxEntry(offset, message("t"), qos=2)
        self.on_batch(turn, "put_group_entry", group_key, entry)
        self.on_batch(turn, "delete_group_entry", group_key, InboxEntry(offset // 2, None, qos=1))

    @rule(group_key=GROUPS, turn=st.integers(0, 2))
    def discard_group(self, group_key: str, turn: int) -> None:
        self.on_batch(turn, "discard_group", group_key)

    # -- retained --------------------------------------------------------------------------

    @rule(topic=TOPICS, expires=SMALL, turn=st.integers(0, 2))
    def put_retained(self, topic: str, expires: int, turn: int) -> None:
        value = message(topic, b"r", offset=1 + expires, expires_at_us=expires)
        self.on_batch(turn, "put_retained", value)

    @rule(topic=TOPICS, turn=st.integers(0, 2))
    def delete_retained(self, topic: str, turn: int) -> None:
        self.on_batch(turn, "delete_retained", topic)

    @rule(now_us=SMALL)
    def sweep(self, now_us: int) -> None:
        run(self.model.sweep_retained(now_us, limit=1_000))
        for _ in range(2):
            run(self.store.sweep_retained(now_us, limit=1_000))

    @rule(topic_filter=FILTERS, limit=st.integers(1, 5))
    def read_retained(self, topic_filter: str, limit: int) -> None:
        pages = []
        for database in (self.model, self.store):
            after: str | None = ""
            found = []
            while after is not None:
                page = run(
                    database.read_retained(topic_filter, after_topic=after, limit=limit, scan_max=7)
                )
                found += page.messages
                after = page.next_after
            pages.append(found)
        assert pages[0] == pages[1]

    # -- everything ------------------------------------------------------------------------

    @invariant()
    def same_sessions(self) -> None:
        if not hasattr(self, "store"):
            return
        model, store = self.model, self.store
        assert store.last_offset == model.last_offset
        assert store.retained_count == model.retained_count
        assert run(store.session_count()) == run(model.session_count())
        assert all_sessions(store) == all_sessions(model)
        assert run(store.next_deadline_us()) == run(model.next_deadline_us())
        due = run(model.due_sessions(20, limit=3))
        assert run(store.due_sessions(20, limit=3)) == due
        for client_id in ("a", "ab", "ä", "a/b"):
            assert run(store.open_session(client_id)) == run(model.open_session(client_id))
            bounds = {"after_offset": 3, "until_offset": 2**62, "limit": 19}
            inbox = run(model.read_inbox(client_id, **bounds))
            assert run(store.read_inbox(client_id, **bounds)) == inbox
        assert run(store.groups()) == run(model.groups())
        for group_key in ("g/a", "g/a/#", "h/a"):
            assert run(store.group_members(group_key)) == run(model.group_members(group_key))
            entries = run(model.read_group_entries(group_key, limit=5))
            assert run(store.read_group_entries(group_key, limit=5)) == entries
        counts = [info.message_count for info in store.generations()]
        assert counts == [info.message_count for info in model.generations()]

    @rule()
    def check(self) -> None:
        assert list(self.store.check()) == []


class NoTailMachine(StoreMachine):
    """Every read goes to the tables; new tokens vary from the third on."""

    config = RocksdbConfig(tail_messages=0, learn_thresholds=(2,))


class ShortTailMachine(StoreMachine):
    """The tail ends within what is read."""

    config = RocksdbConfig(tail_messages=5, tail_bytes=200, learn_thresholds=(0, 1))


class BitmaskMachine(StoreMachine):
    """The other layout."""

    config = RocksdbConfig(layout="bitmask", tail_messages=3)


class UpgradedMachine(StoreMachine):
    """An earlier release has begun it: rotations from a restart on lead to the new layout."""

    config = RocksdbConfig(tail_messages=0, learn_thresholds=(0, 1))

    def first(self) -> RocksDatabase:
        with earlier_layout():
            return super().first()


SETTINGS = settings(
    max_examples=15,
    stateful_step_count=40,
    phases=[Phase.generate],
    print_blob=True,
)

TestStore = StoreMachine.TestCase
TestNoTail = NoTailMachine.TestCase
TestShortTail = ShortTailMachine.TestCase
TestBitmask = BitmaskMachine.TestCase
TestUpgraded = UpgradedMachine.TestCase
TestStore.settings = TestNoTail.settings = SETTINGS
TestShortTail.settings = TestBitmask.settings = TestUpgraded.settings = SETTINGS
