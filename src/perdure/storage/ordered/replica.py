"""A node's database on a shared log: it submits, and applies what the log gives back.

Nothing is changed by ``submit``. A batch becomes a record, or several where it is large; when the
last of them comes back it is applied, as the object that it is, between those of other nodes
(``own_records``). A log that stands still costs memory for what was taken and nothing else.

The node is a member of the cluster while its *incarnation* is one. An incarnation that fails (the
log does, the local store does, or it reads its own expulsion) takes nothing more: what it has on
its way may count or not, and who waits for it is told so. ``recover`` begins the next one, which
expels what the last one may have left.

Invariant: own batches are sequenced in the order of their submission, and what is dispatched of
them and of others' (``on_foreign``) is told in the order of the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from perdure.errors import NodeNameTaken, StorageError, StorageUnavailable
from perdure.storage.batch import Batch
from perdure.storage.capabilities import Capabilities
from perdure.storage.ordered.contract import TIME_STEP_US, LogRecord, OrderedLog
from perdure.storage.ordered.earlier import IN_FLIGHT_MAX
from perdure.storage.ordered.gate import Gate, Later
from perdure.storage.ordered.local import Local
from perdure.storage.ordered.members import Ended, Ending, Members
from perdure.storage.ordered.nodes import Nodes
from perdure.storage.ordered.own_records import OwnBatch, OwnRecords
from perdure.storage.ordered.read_through import ReadThrough
from perdure.storage.ordered.record import (
    PREFIX_BYTES_MAX,
    VERSION,
    Act,
    Begin,
    Expire,
    Join,
    Leave,
    decode_record,
)
from perdure.storage.ordered.view import Applied, View

ACTS_BYTES_MAX: Final = 512 * 1024
"""Bytes of the acts that are submitted in one record."""

HELD_MAX: Final = 64
"""Batches that wait for their turn, beyond which peers pause."""


class Replica(ReadThrough):
    """A ``storage.contract.Database``. Usable from ``open`` on.

    Args:
        local: the node's store.
        open_log: opens the node's end of the log.
        node: its name.
        incarnation: gives a number that no process had before, not 0.
        later, gate: the loop's.
        cpu_us: CPU time of the loop's thread, microseconds.
        advertise: where clients reach this node; empty = it does not say.
        database: identifies the node's store; empty = nothing does.

    Attributes:
        view: what was applied.
        peers: the nodes, for the broker.
        on_sequenced: see ``storage.contract.Database``.
    """

    def __init__(
        self,
        local: Local,
        open_log: Callable[[], Awaitable[OrderedLog]],
        *,
        node: str,
        incarnation: Callable[[], int],
        later: Later,
        gate: Callable[[], Gate],
        cpu_us: Callable[[], int],
        advertise: str = "",
        database: str = "",
    ) -> None:
        super().__init__(local)
        self.view = View(local, database)
        self.peers = Nodes(node, self.view, self._hurry, self._rest)
        self.on_sequenced: Callable[[], None] | None = None
        self._advertise = advertise
        self._open_log = open_log
        self._node = node
        self._next_incarnation = incarnation
        self._later = later
        self._cpu_us = cpu_us
        self._applied_count = 0
        """Messages of what is being taken."""
        self._log: OrderedLog | None = None
        self._own = OwnRecords(node, self._fail, self._written_version)
        self._owed = False
        """Own batches were sequenced, and nobody was told yet."""
        self._failure: StorageError | None = None
        self._is_open = False
        self._new_gate = gate
        self._gate: Gate | None = None

    # -- a member --------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the log to its end, and become a member.

        Raises:
            StorageError: the log can't be opened, or not be read from where this node has come to.
        """
        log = self._log = await self._open_log()
        try:
            bounds = await log.bounds()
            self._own.begin(log, 0)
            self._failure = None
            log.start(self, self.view.position)
            # The position of the next record is never below ``end``.
            await self._until(lambda: self.view.position >= bounds.end)
            self.peers.incarnation = self._next_incarnation()
            self._own.begin(log, self.peers.incarnation)
            self._own.submit(acts=self._entrance())
            await self._until(lambda: self.is_member)
            self.view.has_read_on()
            self._is_open = True
        except BaseException:
            await log.close()
            raise

    def _entrance(self) -> tuple[Act, ...]:
        """What the first record of an incarnation says."""
        join, view = Join(VERSION, self._advertise), self.view
        if view.identity or not view.database:
            return (join,)
        return (join, Begin(view.base, view.database))

    def _written_version(self) -> int:
        """Of records, one that every node reads."""
        return min(self.members.format or VERSION, VERSION)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for something to hold, which is looked at whenever records have come."""
        while not holds():
            self._refuse_if_failed()
            self._hurry()
            gate = self._gate = self._new_gate()
            await gate
        self._refuse_if_failed()

    def _hurry(self) -> None:
        if self._log is not None:
            self._log.hurry()

    def _rest(self) -> None:
        if self._log is not None:
            self._log.rest()

    def _open_gate(self) -> None:
        if self._gate is not None:
            self._gate.open()

    @property
    def is_member(self) -> bool:
        """Whether this incarnation is a member, as far as it has read."""
        return self.members.holds(self._node, self._own.incarnation)

    @property
    def members(self) -> Members:
        """Who is in the cluster, as far as this node has read."""
        return self.view.members

    @property
    def flying_count(self) -> int:
        """Records on their way."""
        return self._own.flying_count

    @property
    def returned_count(self) -> int:
        """Records of this incarnation that have come back."""
        return self._own.returned_count

    @property
    def lag(self) -> int:
        """Records that the log has, as far as is known, and this node has not applied."""
        return 0 if self._log is None else max(0, self._log.end - self.view.position)

    @property
    def problem(self) -> str:
        """What keeps records from coming, for an operator; empty = nothing that is known."""
        return "the log is not open" if self._log is None else self._log.problem

    def beat(self, *, dead_after_us: int) -> None:
        """Once in a while: let others know of this node, and expel those of whom nothing is heard.

        While there is something on its way it lets others know: only an expulsion is submitted
        then, once, for a node that has much to say would never come to it.

        Args:
            dead_after_us: silence, by the log's time, after which a member is expelled.
        """
        if not self._is_open or self._own.is_expelling or self.flying_count >= IN_FLIGHT_MAX:
            return
        dead = [act for act in self.members.silent(dead_after_us) if act.node != self._node]
        if dead:
            self._own.expel(dead)
        elif not self.flying_count:
            self._own.submit()

    async def probe(self) -> None:
        """Submit a record with nothing in it, and wait until all that was submitted is back.

        Raises:
            StorageError: the log has failed.
        """
        self._refuse_unless_open()
        self._own.submit()
        await self._until(lambda: not self.flying_count)

    def submit_acts(self, *acts: Act) -> None:
        """Submit what is no session's matter: ``Expel``, ``Forget``."""
        self._refuse_unless_open()
        self._own.submit(acts=acts)

    async def leave(self) -> None:
        """End the membership, once everything submitted has come back; returns then.

        Raises:
            StorageError: the log has failed before.
        """
        self._refuse_unless_open()
        await self._until(lambda: not self._own.held)
        self._own.submit(acts=(Leave(),))
        while self.is_member and self._failure is None:
            gate = self._gate = self._new_gate()
            await gate

    # -- the database ----------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            sequences_late=True,
            loop_sync=self,
            may_be_taken=True,
            peers=self.peers,
            time_step_us=TIME_STEP_US,
        )

    @property
    def has_failed(self) -> bool:
        return not self._is_open

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the log that peers must pause."""
        return len(self._own.held) >= HELD_MAX

    def begin_sync(self, done: Callable[[BaseException | None], None]) -> None:
        """What is sequenced is safe already: that is the log's promise."""
        self._later(lambda: done(self._failure))

    def sync(self) -> None:
        self._refuse_unless_open()

    def submit(self, batch: Batch, now_us: int) -> None:
        self._refuse_unless_open()
        if batch.is_empty() and not batch.placed:
            batch.is_sequenced = True
            return
        if batch.is_awaited():
            self._hurry()
        self._own.held.append(OwnBatch(batch))
        self._own.send_held()

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        self._refuse_unless_open()
        expired: list[Act] = []
        size_bytes = 0
        for operation in self._local.expired_retained(now_us, limit=limit).operations:
            topic: str = operation.topic  # type: ignore[attr-defined]
            size_bytes += len(topic.encode()) + PREFIX_BYTES_MAX
            if size_bytes > ACTS_BYTES_MAX:
                break
            expired.append(Expire(self._local.retained_offset_of(topic), topic))
        if expired:
            self._own.submit(acts=tuple(expired))
        return len(expired)

    async def recover(self) -> bool:
        if self._is_open:
            return True
        if self._log is not None:
            await self._log.close()
            self._log = None
        if self._local.has_failed and not await self._local.recover():
            return False
        self.view.load()
        try:
            await self.open()
        except StorageUnavailable:
            return False
        return True

    def close(self) -> None:
        """Close the local store; ``leave`` and ``shut`` come before."""
        self._local.close()

    async def shut(self) -> None:
        """Close the log; nothing is submitted or applied after this."""
        self._is_open = False
        if self._log is not None:
            await self._log.close()

    # -- submitting ------------------------------------------------------------------------

    def _refuse_if_failed(self) -> None:
        failure = self._failure
        if failure is not None:
            raise type(failure)(failure.message, hint=failure.hint)

    def _refuse_unless_open(self) -> None:
        self._refuse_if_failed()
        if not self._is_open:
            raise StorageUnavailable("the log is not open")

    # -- applying --------------------------------------------------------------------------

    def records(self, records: list[LogRecord]) -> None:
        """From the log, in order."""
        begun_us, self._applied_count = self._cpu_us(), 0
        try:
            for entry in records:
                if self._failure is not None:
                    break
                self._take(entry)
            if self._failure is None:
                for applied in self.view.flush():
                    self._applied(applied)
            self._tell_owed()
            if self.peers.on_time is not None:
                self.peers.on_time(records[-1].time_us)
            if self._is_open:
                self._own.send_held()
            self._open_gate()
            if self.peers.on_applied is not None:
                self.peers.on_applied(self._applied_count, self._cpu_us() - begun_us)
        except StorageError as error:
            self._fail(error)

    def failed(self, error: StorageError) -> None:
        """From the log: it is over."""
        self._fail(error)

    def _take(self, entry: LogRecord) -> None:
        record = decode_record(entry.value)
        own = self._own.returned(record)
        if own is None:
            done: list[Applied] = []
            try:
                self.view.gather(entry, record, done)
            finally:
                for applied in done:
                    self._applied(applied)
            return
        for applied in self.view.flush():
            self._applied(applied)
        self._applied(self.view.apply(entry, record, own), own)

    def _applied(self, applied: Applied, own: Batch | None = None) -> None:
        if applied.batch is not None:
            self._applied_count += applied.batch.recorded_count
        if own is not None and applied.batch is own:
            self._own.applied()
            self._owed = True
        elif applied.batch is not None and self.peers.on_foreign is not None:
            # What stands before it in the log is told before it.
            self._tell_owed()
            self.peers.on_foreign(applied.batch)
        for ended in applied.ended:
            self._ended(ended)

    def _ended(self, ended: Ended) -> None:
        is_own = ended.node == self._node and ended.incarnation == self._own.incarnation
        if is_own:
            self._tell_owed()  # it was applied before this
            if ended.ending is Ending.REPLACED:
                self._fail(
                    NodeNameTaken(
                        f"another process has joined the cluster as node {self._node}",
                        hint="give each node a node.name of its own, and start this one again",
                    )
                )
            elif ended.ending is not Ending.LEFT:
                self._fail(StorageUnavailable(f"this node was {ended.ending.value}"))
            else:
                self._is_open = False
                self._failure = StorageUnavailable("this node has left the cluster")
        self.peers.tell_gone(ended, is_own=is_own)

    def _tell_owed(self) -> None:
        if self._owed:
            self._owed = False
            if self.on_sequenced is not None:
                self.on_sequenced()

    def _fail(self, error: StorageError) -> None:
        """This incarnation takes nothing more and acknowledges nothing more."""
        if self._failure is not None:
            return
        self._failure = error
        self._is_open = False
        self._own.end()
        self._open_gate()
        if self.peers.on_failed is not None:
            self.peers.on_failed(error)
