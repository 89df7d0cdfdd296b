"""A log that is somewhere else: it orders the batches of several nodes, later than they like.

``OrderedLog`` holds what its nodes have submitted, as bytes, and decides by chance whose comes
next; it alone gives the time. ``LateDatabase`` is a ``storage.contract.Database`` on such a log: it
changes nothing by itself, and applies every batch when the log gives it back, its own as the object
that it still has and those of others as decoded from their bytes. So all nodes must come to one
state (``digest``), and no reader of a batch of its own may look at an offset before that.

It is a toy: no produce fails, nothing is lost but by a crash, and generations are each node's own.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, final

import msgspec

from perdure.errors import StorageUnavailable
from perdure.model import InboxEntry, Message, SessionRecord
from perdure.storage.batch import Batch, give_offsets
from perdure.storage.batch_codec import decode, encode, placed_at
from perdure.storage.capabilities import Capabilities
from perdure.storage.codec import encode_entry, encode_record
from perdure.storage.memory import MemoryDatabase
from tests.support.storage import FaultyDatabase, ProcessDied

NEIGHBOUR = "neighbour"
FLIGHT_MAX = 10_000
"""Batches of a submitter whose placed things a later one of its may name."""


class Record(NamedTuple):
    """What a node has handed to the log.

    Attributes:
        node: who.
        value: the bytes of the batch.
        now_us: its time then; the log's own never goes back.
    """

    node: int
    value: bytes
    now_us: int


@final
class OrderedLog:
    """One order for all nodes.

    Args:
        chance: decides whose batch is next.

    Attributes:
        record_count: records that were given out.
        before_record: called before the next one is chosen.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random(0)
        self._nodes: list[LateDatabase] = []
        self._waiting: dict[int, deque[Record]] = {}
        self._now_us = 0
        self.record_count = 0
        self.before_record: Callable[[], None] | None = None

    def join(self, node: LateDatabase) -> int:
        """A node begins to read; returns its number."""
        self._nodes.append(node)
        number = len(self._nodes) - 1
        self._waiting[number] = deque()
        return number

    def leave(self, number: int, *, arrived: int) -> None:
        """A node is dead: so many of its records had reached the log, the others are lost."""
        waiting = self._waiting[number]
        while len(waiting) > arrived:
            waiting.pop()

    def take(self, record: Record) -> None:
        """A node submits a record."""
        self._waiting[record.node].append(record)

    def sequence_one(self) -> bool:
        """Give the next record to all nodes; False if there is none."""
        if self.before_record is not None:
            self.before_record()
        ready = [number for number, waiting in self._waiting.items() if waiting]
        if not ready:
            return False
        record = self._waiting[self._chance.choice(ready)].popleft()
        self._now_us = max(self._now_us, record.now_us)
        self.record_count += 1
        for node in self._nodes:
            node.receive(record, self._now_us)
        return True

    def sequence_all(self) -> None:
        """Give out everything."""
        while self.sequence_one():
            pass


class LateDatabase(FaultyDatabase):
    """A node's database.

    Args:
        inner: what it has applied so far.
        log: the log; None = one of its own.

    Attributes:
        later: given what lets the log go on to the next record of this node, it is called at each
            submit; None = the test lets it go on.
    """

    def __init__(self, inner: MemoryDatabase | None = None, log: OrderedLog | None = None) -> None:
        super().__init__(inner)
        self.log = log or OrderedLog()
        self.later: Callable[[Callable[[], None]], object] | None = None
        self._number = self.log.join(self)
        self._is_dead = False
        self._in_flight: deque[Batch] = deque()
        # Where what was placed in the last batches of each node stands, newest first.
        self._placed: dict[int, deque[int]] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sequences_late=True)

    def submit(self, batch: Batch, now_us: int) -> None:
        if self._is_dead:
            raise StorageUnavailable("the database is closed")
        self.fail_if_told()
        dies = self.dies()
        if dies and not self.die_after_write:
            raise ProcessDied
        assert len(self._in_flight) < FLIGHT_MAX
        self.log.take(Record(self._number, encode(batch, list(self._in_flight)), now_us))
        self._in_flight.append(batch)
        self.write_count += 1
        if dies:
            raise ProcessDied
        if self.later is not None:
            self.later(self._go_on)

    def use_loop(self, later: Callable[[Callable[[], None]], object]) -> None:
        self.later = later

    def _go_on(self) -> None:
        """The log comes to the next record of this node."""
        before = len(self._in_flight)
        while not self._is_dead and before and len(self._in_flight) == before:
            self.log.sequence_one()

    def receive(self, record: Record, now_us: int) -> None:
        """The log gives a record back, at its own time."""
        if self._is_dead:
            return
        placed = self._placed.setdefault(record.node, deque(maxlen=FLIGHT_MAX))
        if record.node == self._number:
            batch = self._in_flight.popleft()
            give_offsets(batch, self.inner.offsets, now_us)
        else:
            batch = decode(record.value, self.inner.offsets, now_us, list(placed))
        placed.appendleft(placed_at(batch))
        self.inner.apply(batch)
        if record.node == self._number and self.on_sequenced is not None:
            self.on_sequenced()

    def sequence_all(self) -> None:
        """Let the log give back all that was submitted."""
        self.log.sequence_all()

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        batch = self.inner.expired_retained(now_us, limit=limit)
        self.submit(batch, now_us)
        if self.later is None:
            self.sequence_all()
        return len(batch.operations)

    def crash(self, *, power: bool, chance: random.Random | None = None) -> LateDatabase:
        """The process dies. What was on its way has reached the log or not; what is in the log
        survives the power, which is the log's business."""
        arrived = chance.randint(0, len(self._in_flight)) if chance is not None else 0
        self.log.leave(self._number, arrived=arrived)
        self.on_sequenced = None
        # The next process fences this one by its first record: what has arrived comes before.
        self.log.sequence_all()
        return self.reopened()

    def reopened(self) -> LateDatabase:
        """What the next process opens."""
        if not self._is_dead:
            self._is_dead = True
            self.inner.sync()
        database = LateDatabase(self.inner.reopened(), self.log)
        # What every node must know alike, and a real one would keep with its position in the log.
        database.inner.offsets.last = self.inner.offsets.last
        database._placed = self._placed
        return database

    def close(self) -> None:
        if not self._is_dead:
            self.sequence_all()
            super().close()
        self._is_dead = True


@final
class Neighbour:
    """Another node, which has something to say in between.

    Args:
        log: the log.
        chance: decides what, and how often.
    """

    def __init__(self, log: OrderedLog, chance: random.Random) -> None:
        self.node = LateDatabase(log=log)
        self._chance = chance
        self._entries: list[InboxEntry] = []
        log.before_record = self.speak
        batch = Batch()
        batch.put_session(SessionRecord(NEIGHBOUR, 1, 1, 0xFFFF_FFFF, False, 1))
        self.node.submit(batch, 0)
        log.sequence_all()

    def speak(self) -> None:
        """Submit a batch now and then."""
        if self._chance.random() < 0.6:
            return
        batch = Batch()
        for number in range(self._chance.randint(0, 2)):
            batch.append(Message(f"elsewhere/{number}", b"x", 1, publisher=NEIGHBOUR))
        entry = InboxEntry(0, Message("private", b"x", 1), qos=1, group_key="h/a")
        batch.place(entry)
        batch.put_inbox(NEIGHBOUR, entry, epoch=1)
        self._entries.append(entry)
        if len(self._entries) > 2:
            # Perhaps it is on its way still.
            old = self._entries.pop(self._chance.randrange(2))
            batch.bury_inbox(NEIGHBOUR, old, epoch=1)
            batch.put_group_entry("h/a", old)
        self.node.submit(batch, 0)


def digest(database: FaultyDatabase) -> bytes:
    """What a node holds, as bytes: the same for all nodes that have applied the same records.

    Generations, and what was dropped with them, are each node's own.
    """
    state = database.inner.state
    return msgspec.msgpack.encode(
        [
            database.inner.offsets.last,
            [
                [
                    client_id,
                    encode_record(session.record),
                    repr(session.cursor),
                    sorted(session.subscriptions),
                    sorted(session.awaiting_release),
                ]
                for client_id, session in sorted(state.sessions.items())
            ],
            [
                [client_id, [[at, encode_entry(inbox[at])] for at in sorted(inbox)]]
                for client_id, inbox in sorted(state.inboxes.items())
                if inbox
            ],
            [
                [
                    key,
                    repr(group.record),
                    sorted(group.members),
                    [[at, encode_entry(group.entries[at])] for at in sorted(group.entries)],
                ]
                for key, group in sorted(state.groups.items())
            ],
            [_told(state.retained[topic]) for topic in sorted(state.retained)],
        ]
    )


def messages_of(database: FaultyDatabase) -> list[list[object]]:
    """The log of a node."""
    return [_told(message) for message in database.inner.state.log]


def _told(message: Message) -> list[object]:
    return [
        message.offset,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.publisher,
        message.properties,
        message.expires_at_us,
        message.published_at_us,
    ]
