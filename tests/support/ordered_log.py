"""A log that is somewhere else, under a whole broker: batches are sequenced later than it likes.

``OrderedLog`` is the toy of ``shared_log``, which goes on by one record at a time and decides by
chance whose comes next. ``LateDatabase`` is a node on it, the product's ``storage.ordered.Replica``
on a store in memory, with the faults of ``FaultyDatabase`` and a place in the simulation: its
process dies, and the next one is another incarnation that reads on where the disk has come to.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from typing import final

from perdure.errors import StorageUnavailable
from perdure.model import InboxEntry, Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.capabilities import Capabilities
from perdure.storage.memory import MemoryDatabase
from tests.support.cluster_node import SteppedReplica, drive
from tests.support.shared_log import LogEnd, SharedLog
from tests.support.storage import FaultyDatabase, ProcessDied

NEIGHBOUR = "neighbour"


@final
class OrderedLog:
    """One order for all nodes.

    Args:
        chance: decides whose batch is next.

    Attributes:
        shared: the log itself.
        incarnations: numbers of processes.
        before_record: called before the next record is chosen.
        read_later: given what has a node read what there is; None = all nodes read at once.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        self.shared = SharedLog(chance)
        self.incarnations = itertools.count(1)
        self.before_record: Callable[[], None] | None = None
        self.read_later: Callable[[Callable[[], object]], object] | None = None
        self._names = (f"node-{number}" for number in itertools.count(1))

    def name(self) -> str:
        """A name that no node has."""
        return next(self._names)

    def sequence_one(self) -> bool:
        """Give the next record to all nodes; False if there is none."""
        if self.before_record is not None:
            self.before_record()
        found = self.shared.take_one()
        if self.read_later is None:
            self.shared.read_all()
        elif found:
            for end in self.shared.ends:
                self.read_later(functools.partial(self._read, end))
        return found

    def _read(self, end: LogEnd) -> None:
        end.read()
        if end.waiting and self.read_later is not None:
            # What it has held back until now, or further parts of a batch.
            self.read_later(self.sequence_one)

    def sequence_all(self) -> None:
        """Give out everything."""
        while self.sequence_one():
            pass


class LateDatabase(FaultyDatabase):
    """A node's database.

    Args:
        inner: what its disk holds.
        log: the log; None = one of its own.
        name: of the node; empty = a new one.
        has_peers: the broker on it knows of the other nodes.
        is_only: the others have no brokers, so all that one of them does is this one's.

    Attributes:
        replica: the product's.
        later: given what lets the log go on to the next record of this node, it is called at each
            submit; None = the test lets it go on.
    """

    def __init__(
        self,
        inner: MemoryDatabase | None = None,
        log: OrderedLog | None = None,
        name: str = "",
        *,
        has_peers: bool = False,
        is_only: bool = True,
    ) -> None:
        super().__init__(inner)
        self.has_peers = has_peers
        self.is_only = is_only
        self.log = log or OrderedLog()
        self.later: Callable[[Callable[[], None]], object] | None = None
        self._name = name or self.log.name()
        self._sync_later: Callable[[Callable[[], None]], object] | None = None
        self._is_dead = False
        self.replica = SteppedReplica(
            self.log.shared, self._name, self.inner, self.log.incarnations
        )
        self.replica.on_sequenced = self._sequenced
        if has_peers and is_only:
            setattr(self.replica.peers, "owns", lambda _duty: True)  # noqa: B010
        drive(self.replica.open(), self._go_through)

    def _go_through(self) -> None:
        """The log goes on, and this node reads it."""
        self.log.sequence_one()
        end = self.replica.end
        if end is not None:
            end.read()

    def _sequenced(self) -> None:
        if self.on_sequenced is not None:
            self.on_sequenced()

    @property
    def capabilities(self) -> Capabilities:
        peers = self.replica.peers if self.has_peers else None
        step_us = self.log.shared.time_step_us
        return Capabilities(sequences_late=True, loop_sync=self, peers=peers, time_step_us=step_us)

    @property
    def has_failed(self) -> bool:
        return self.replica.has_failed

    @property
    def is_full(self) -> bool:
        """See ``capabilities.LoopSync``."""
        return self.replica.is_full

    def begin_sync(self, done: Callable[[BaseException | None], None]) -> None:
        """See ``capabilities.LoopSync``."""
        if self._is_dead:
            return  # a turn that the death has cut short: the disk is the next process's
        self.sync_count += 1
        self.inner.sync()
        if self._sync_later is not None:
            self._sync_later(lambda: None if self._is_dead else done(None))

    def sync(self) -> None:
        self.replica.sync()

    async def recover(self) -> bool:
        return await self.replica.recover()

    def submit(self, batch: Batch, now_us: int) -> None:
        if self._is_dead:
            raise StorageUnavailable("the database is closed")
        self.fail_if_told()
        dies = self.dies()
        if dies and not self.die_after_write:
            raise ProcessDied
        self.replica.submit(batch, now_us)
        self.write_count += 1
        if dies:
            raise ProcessDied
        if self.later is not None:
            self.later(self._go_on)

    def use_loop(self, later: Callable[[Callable[[], None]], object]) -> None:
        self.later = self._sync_later = later

    def _go_on(self) -> None:
        """The log comes to the next record of this node."""
        if self.log.read_later is not None:
            end = self.replica.end
            assert end is not None
            waiting = len(end.waiting)
            while not self._is_dead and waiting and len(end.waiting) >= waiting:
                if not self.log.sequence_one():
                    return  # it is cut off
            return
        before = self.replica.flying_count
        while not self._is_dead and before and self.replica.flying_count >= before:
            self.log.sequence_one()

    def sequence_all(self) -> None:
        """Let the log give back all that was submitted."""
        self.log.sequence_all()

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        return await self.replica.sweep_retained(now_us, limit=limit)

    def crash(self, *, power: bool, chance: random.Random | None = None) -> LateDatabase:
        """The process dies. What was on its way has reached the log or not. If the machine dies
        too, the next process reads again what the disk has not kept."""
        end = self.replica.end
        assert end is not None
        for _ in range(chance.randint(0, len(end.waiting)) if chance is not None else 0):
            self.log.shared.take(end)
        end.die()
        self._is_dead = True
        self.on_sequenced = None
        if power:
            self.inner.lose_power(keep=chance.randint(0, 5) if chance is not None else 0)
        return self._next()

    def reopened(self) -> LateDatabase:
        """What the next process opens."""
        self.close()
        return self._next()

    def _next(self) -> LateDatabase:
        return LateDatabase(
            self.inner.reopened(),
            self.log,
            self._name,
            has_peers=self.has_peers,
            is_only=self.is_only,
        )

    def close(self) -> None:
        if not self._is_dead:
            self._is_dead = True
            self.log.sequence_all()
            drive(self.replica.leave(), self._go_through)
            drive(self.replica.shut(), lambda: None)
            super().close()


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
            batch.put_tombstone(NEIGHBOUR, old, epoch=1)
            batch.put_group_entry("h/a", old)
        self.node.submit(batch, 0)


def digest(database: LateDatabase) -> str:
    """What a node holds: the same for all nodes that have applied the same records."""
    return database.replica.digest()


def messages_of(database: FaultyDatabase) -> list[list[object]]:
    """The log of a node."""
    return [
        [
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
        for message in database.inner.state.log
    ]
