"""Nodes on one log, and everything that can come between: no order of events makes them differ.

The nodes are the product's (``storage.ordered``), on stores in memory; the log is the toy, which a
rule moves by one record at a time. They crash with records on their way and with or without what
they had not synced, have full disks, are cut off, are slow, are expelled while they live, take
sessions from each other, and the log takes a record twice.

Kept, whatever happens:

- at one position of the log all nodes hold the same, bit for bit, also one that applied it again;
- what was acknowledged is in the log, once, and nothing that was refused or is stale is;
- the messages of a node stand in the order in which it submitted them, through all its processes;
- of a batch all is there or nothing, however many records it took;
- a session has one owner at a time, whoever else has claimed it as the same one;
- a process hears of its own batches and of others' in the order of the log, of each once;
- a process that has read its expulsion takes nothing more.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from functools import partial
from typing import final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from perdure.errors import StorageFull
from perdure.model import Cursor, InboxEntry, Message
from perdure.storage.batch import Batch
from perdure.storage.memory import MemoryDatabase
from perdure.storage.operations import ClaimSession
from perdure.storage.ordered.members import Ending
from perdure.storage.ordered.record import ANYHOW, PREFIX_BYTES_MAX, Expel, Forget
from tests.contract.values import entry, message, record
from tests.support.cluster_node import SteppedReplica, drive
from tests.support.shared_log import LogEnd, SharedLog

NAMES = ("n1", "n2", "n3")
SESSIONS = ("s1", "s2")
DEAD_AFTER_US = 6_000_000
PART_BYTES = 200
"""So little of a batch fits into a record that most take several."""

nodes = st.sampled_from(NAMES)


@final
class Node:
    """One name, and the processes that have it.

    Attributes:
        replica: of the process; None = there is none.
        local: what its disk holds.
        batches: all that it has submitted, with the payloads of their messages.
        told: how many of those it has acknowledged, by payload.
        epochs: of the sessions that it believes to own.
        placed: entries that this process has placed.
        heard: offset of the last message that this process was told of.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.replica: SteppedReplica | None = None
        self.local = MemoryDatabase()
        self.batches: list[tuple[Batch, list[bytes]]] = []
        self.acknowledged: set[bytes] = set()
        self.epochs: dict[str, int] = {}
        self.placed: list[InboxEntry] = []
        self.heard = 0

    def hear(self, batch: Batch) -> None:
        """What was dispatched here."""
        for each in batch.recorded():
            assert each.offset > self.heard, "told out of order"
            self.heard = each.offset


class ClusterMachine(RuleBasedStateMachine):
    """Three nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.log = SharedLog(record_bytes_max=PREFIX_BYTES_MAX + PART_BYTES)
        self.log.now_us = 1_000_000_000
        self.incarnations = itertools.count(1)
        self.numbers = itertools.count(1)
        self.nodes = {name: Node(name) for name in NAMES}
        self.digests: dict[int, str] = {}
        self.owners: dict[tuple[str, int], Batch] = {}
        for name in NAMES:
            self._start(self.nodes[name])

    # -- steps -----------------------------------------------------------------------------

    def _end(self, node: Node) -> LogEnd:
        assert node.replica is not None
        assert node.replica.end is not None
        return node.replica.end

    def _read(self, node: Node, count: int = 1) -> bool:
        """A node reads some records, and holds what all hold that have come so far."""
        assert node.replica is not None
        if not self._end(node).read(count):
            return False
        self._compare(node)
        assert node.replica.has_failed or node.replica.is_member, "it goes on without a place"
        return True

    def _compare(self, node: Node) -> None:
        assert node.replica is not None
        if node.local.has_failed:  # it forgets what it did not write when it recovers
            return
        found = node.replica.digest()
        known = self.digests.setdefault(node.replica.view.position, found)
        assert found == known, f"{node.name} differs at {node.replica.view.position}"

    def _pump(self, node: Node) -> None:
        end = node.replica.end if node.replica is not None else None
        if end is None:
            return
        end.is_cut = False
        if not self._read(node) and end.waiting:
            self.log.take(end)

    def _start(self, node: Node) -> None:
        node.replica = SteppedReplica(self.log, node.name, node.local, self.incarnations)
        node.replica.on_sequenced = partial(self._acknowledge, node)
        node.replica.peers.on_foreign = node.hear
        node.epochs, node.placed, node.heard = {}, [], 0
        drive(node.replica.open(), partial(self._pump, node))

    def _acknowledge(self, node: Node) -> None:
        there = {each.payload for each in node.local.state.log}
        for batch, payloads in node.batches:
            if batch.is_sequenced and not node.acknowledged.issuperset(payloads):
                assert there.issuperset(payloads), "acknowledged before it was applied"
                node.acknowledged.update(payloads)
                node.hear(batch)
        self._own(node)

    def _own(self, node: Node) -> None:
        """Of two nodes that claim a session as the same owner, one is it."""
        for batch, _ in node.batches:
            for operation in batch.operations if batch.is_sequenced else ():
                if isinstance(operation, ClaimSession) and operation not in batch.refused:
                    key = (operation.client_id, operation.epoch)
                    assert self.owners.setdefault(key, batch) is batch, "two owners at once"

    def _live(self, name: str) -> Node | None:
        node = self.nodes[name]
        return node if node.replica is not None and not node.replica.has_failed else None

    # -- what nodes do ---------------------------------------------------------------------

    @rule(name=nodes, count=st.integers(0, 3), size=st.integers(0, 300), seed=st.integers(0, 9999))
    def submit(self, name: str, count: int, size: int, seed: int) -> None:
        """Messages, and changes of the sessions that the node believes to own."""
        node = self._live(name)
        if node is None:
            return
        assert node.replica is not None
        chance = random.Random(seed)
        batch, payloads = Batch(), []
        messages: list[Message] = []
        for _ in range(count):
            payload = b"%s %d " % (name.encode(), next(self.numbers))
            messages.append(message(f"t/{chance.randrange(3)}", payload + bytes(size)))
            payloads.append(messages[-1].payload)
        batch.extend(messages)
        if messages and chance.random() < 0.5:
            batch.put_retained(messages[0])
        elif chance.random() < 0.2:
            batch.delete_retained(f"t/{chance.randrange(3)}")
        for session, epoch in node.epochs.items():
            batch.put_cursor(session, Cursor(next(self.numbers)), epoch=epoch)
            if chance.random() < 0.3:
                batch.put_awaiting_release(session, chance.randint(1, 9), epoch=epoch)
            self._place(node, batch, session, epoch, chance)
        node.batches.append((batch, payloads))
        node.replica.submit(batch, self.log.now_us)

    def _place(
        self, node: Node, batch: Batch, session: str, epoch: int, chance: random.Random
    ) -> None:
        """An entry of a private stream, and another one, perhaps on its way, that goes back."""
        new = entry(0, b"%d" % next(self.numbers), group_key="g/a")
        batch.place(new)
        batch.put_inbox(session, new, epoch=epoch)
        node.placed.append(new)
        if chance.random() < 0.5:
            old = node.placed.pop(chance.randrange(len(node.placed)))
            batch.put_tombstone(session, old, epoch=epoch)
            batch.put_group_entry("g/a", old)

    @rule(name=nodes, session=st.sampled_from(SESSIONS))
    def take_over(self, name: str, session: str) -> None:
        """A client of a session comes to this node."""
        node = self._live(name)
        if node is None:
            return
        assert node.replica is not None
        seen = node.local.owner_epoch(session) or 0
        batch = Batch()
        batch.claim_session(record(session, epoch=seen + 1, username=name), seen=seen)
        node.epochs[session] = seen + 1
        node.batches.append((batch, []))
        node.replica.submit(batch, self.log.now_us)

    @rule(name=nodes)
    def beat(self, name: str) -> None:
        """The timer of a node."""
        node = self._live(name)
        if node is not None and node.replica is not None:
            node.replica.beat(dead_after_us=DEAD_AFTER_US)

    @rule(name=nodes, other=nodes, heard=st.sampled_from([0, -1, ANYHOW]))
    def expel(self, name: str, other: str, heard: int) -> None:
        """A node says that another one, which may live, is dead."""
        node = self._live(name)
        if node is None:
            return
        assert node.replica is not None
        member = node.replica.members.get(other)
        if member is not None and member.incarnation:
            heard = heard if heard == ANYHOW else max(0, member.number + heard)
            node.replica.submit_acts(Expel(other, member.incarnation, heard), Forget(other))

    # -- what the log does -----------------------------------------------------------------

    @rule(name=nodes, twice=st.booleans())
    def take(self, name: str, twice: bool) -> None:
        """The log takes a record, perhaps twice."""
        node = self.nodes[name]
        if node.replica is not None and not self._end(node).is_cut and self._end(node).waiting:
            self.log.take(self._end(node), twice=twice)

    @rule(name=nodes, count=st.integers(1, 8), at_once=st.booleans())
    def read(self, name: str, count: int, at_once: bool) -> None:
        """A node reads on."""
        node = self.nodes[name]
        if node.replica is not None and not self._end(node).is_cut:
            for step in [count] if at_once else [1] * count:
                self._read(node, step)

    @rule(step_us=st.sampled_from([1, 1000, 3_000_000, -2_000_000]))
    def time(self, step_us: int) -> None:
        """The clock of the log's machine goes, or is set back."""
        self.log.now_us += step_us

    @rule(name=nodes)
    def cut(self, name: str) -> None:
        """The network between a node and the log goes, or comes back."""
        node = self.nodes[name]
        if node.replica is not None:
            self._end(node).is_cut ^= True

    # -- what happens to nodes -------------------------------------------------------------

    @rule(name=nodes, arrived=st.integers(0, 20), power=st.booleans(), keep=st.integers(0, 5))
    def crash(self, name: str, arrived: int, power: bool, keep: int) -> None:
        """A process dies; perhaps its machine too, which keeps some of what was not synced."""
        node = self.nodes[name]
        if node.replica is None:
            return
        node.local.fail_with = None
        self._end(node).die(arrived=arrived)
        node.replica = None
        if power:
            node.local.lose_power(keep=keep)
        node.local = node.local.reopened()

    @rule(name=nodes)
    def sync(self, name: str) -> None:
        """The disk has what was written."""
        local = self.nodes[name].local
        if local.fail_with is None and not local.has_failed:
            local.sync()

    @rule(name=nodes)
    @precondition(lambda self: any(node.replica is None for node in self.nodes.values()))
    def start(self, name: str) -> None:
        """The next process."""
        node = self.nodes[name]
        if node.replica is None:
            node.local.fail_with = None
            self._start(node)

    @rule(name=nodes)
    def recover(self, name: str) -> None:
        """A process that was expelled begins anew."""
        node = self.nodes[name]
        if node.replica is not None and node.replica.has_failed:
            node.epochs, node.placed = {}, []
            recovered = drive(node.replica.recover(), partial(self._pump, node))
            assert recovered == (node.local.fail_with is None)

    @rule(name=nodes)
    def fill_disk(self, name: str) -> None:
        """A node's disk takes nothing more."""
        if self._live(name) is not None:
            self.nodes[name].local.fail_with = StorageFull("no space")

    @rule(name=nodes)
    def empty_disk(self, name: str) -> None:
        """It does again."""
        self.nodes[name].local.fail_with = None

    # -- the end ---------------------------------------------------------------------------

    def teardown(self) -> None:
        """Everybody comes back, and reads all."""
        for node in self.nodes.values():
            node.local.fail_with = None
            if node.replica is None:
                self._start(node)
            self._end(node).is_cut = False
        busy = True
        while busy:
            busy = self.log.take_one()
            for node in self.nodes.values():
                while self._read(node):
                    busy = True
                assert node.replica is not None
                if node.replica.has_failed:
                    # It has read its expulsion, and goes on as another incarnation.
                    busy |= drive(node.replica.recover(), partial(self._pump, node))
        self._audit()

    def _audit(self) -> None:
        logs = []
        for node in self.nodes.values():
            self._compare(node)
            logs.append([(m.offset, m.topic, m.payload) for m in node.local.state.log])
        assert logs[0] == logs[1] == logs[2]
        offsets = [offset for offset, _, _ in logs[0]]
        assert offsets == sorted(set(offsets))
        there = [payload for _, _, payload in logs[0]]
        assert len(there) == len(set(there)), "something is there twice"
        found = set(there)
        for node in self.nodes.values():
            assert found >= node.acknowledged, "something acknowledged is lost"
            sent = [payload for _, payloads in node.batches for payload in payloads]
            mine = set(sent)
            assert [p for p in there if p in mine] == [p for p in sent if p in found]
            for _, payloads in node.batches:
                kept = found.intersection(payloads)
                assert kept in (set(), set(payloads)), "a batch is there in part"
            assert node.replica is not None
            ended = [member.reason for member in node.replica.members.all()]
            assert Ending.BROKEN.value not in ended, "the log left something out"


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(
    max_examples=int(os.environ.get("PERDURE_MODEL_EXAMPLES", "60")),
    stateful_step_count=60,
)


def _run(seed: int, steps: int) -> ClusterMachine:
    """More steps than a search for a smallest example can take, most of them ordinary work."""
    chance = random.Random(seed)
    machine = ClusterMachine()

    def name() -> str:
        return chance.choice(NAMES)

    moves: list[tuple[int, Callable[[], object]]] = [
        (
            30,
            lambda: machine.submit(
                name(), chance.randint(0, 3), chance.randint(0, 300), chance.randrange(10_000)
            ),
        ),
        (80, lambda: machine.take(name(), chance.random() < 0.05)),
        (40, lambda: machine.read(name(), chance.randint(1, 8), chance.random() < 0.5)),
        (4, lambda: machine.take_over(name(), chance.choice(SESSIONS))),
        (4, lambda: machine.beat(name())),
        (4, lambda: machine.time(chance.choice([1, 1000, 3_000_000, -2_000_000]))),
        (3, lambda: machine.sync(name())),
        (2, lambda: machine.cut(name())),
        (2, lambda: machine.expel(name(), name(), chance.choice([0, -1, ANYHOW]))),
        (1, lambda: machine.fill_disk(name())),
        (10, lambda: machine.empty_disk(name())),
        (
            1,
            lambda: machine.crash(
                name(), chance.randint(0, 20), chance.random() < 0.5, chance.randint(0, 5)
            ),
        ),
        (10, lambda: machine.start(name())),
        (10, lambda: machine.recover(name())),
    ]
    weights = [weight for weight, _ in moves]
    for _ in range(steps):
        chance.choices(moves, weights)[0][1]()
    machine.teardown()
    return machine


@pytest.mark.parametrize("seed", range(20))
def test_long_runs(seed: int) -> None:
    machine = _run(seed, 1000)
    assert sum(len(node.acknowledged) for node in machine.nodes.values()) > 20
    assert len(machine.digests) > 100
