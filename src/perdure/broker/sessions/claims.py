"""How a node of a cluster comes to own a session: by a claim in the log, which has one order.

A claim names the owner that was read, and is refused everywhere if that is not the owner when it is
applied. What the owner before has submitted in time is applied then, so what is read after the
claim is all there is; what it submits later is refused. Its node reads the claim too, lets go, and
hands over how far the client has come: one cursor under the new owner, which waits for it a little,
so that a client that moves is not sent again what it has acknowledged. Whether the will is due is
known to the node that has the connection, so that one publishes it with the cursor; the new owner
does if no cursor comes.

Epochs are higher than any before that the node knows of: the position of the log is among what
they are taken from. A node that is behind may begin a session anew that others have ended, below
epochs of theirs, so what an owner asks for holds under its own epoch alone (``storage.fencing``),
and incarnations that are equally far behind have one in common in 1 of 65,536 pairs. Letting go
takes one of its own (``detach``), so a claim is made again if the session was let go after it was
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.commit.waiters import LEVEL_OS
from perdure.errors import MqttError, StorageError, StorageUnavailable
from perdure.mqtt.reason_codes import SERVER_BUSY, SESSION_TAKEN_OVER
from perdure.storage.peers import epoch_after

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.runtime.scheduler import Gate
    from perdure.broker.sessions.wills import WillPublisher
    from perdure.model import Cursor, SessionRecord, StoredSession
    from perdure.storage.batch import Batch
    from perdure.storage.operations import Operation

HANDOVER_US: Final = 500_000
"""How long a claim waits for the cursor of the node that had the session."""

CLAIMS_MAX: Final = 64
"""Claims that one CONNECT may lose to others of its client identifier."""


@final
class _Holds:
    """Takes note of a claim that holds, in the log's order with the claims of others.

    Args:
        opening: where.
        batch: has it.
        claim: the operation.
    """

    def __init__(self, opening: dict[str, int], batch: Batch, claim: Operation) -> None:
        self._opening = opening
        self._batch = batch
        self._claim = claim

    def committed(self) -> None:
        """It is in the log."""
        if self._claim not in self._batch.refused:
            self._opening[self._claim.client_id] = self._claim.epoch

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Who has made it sees that its batch was not sequenced."""

    def broke(self, error: Exception) -> None:
        """Taking note does not fail."""
        raise error


@final
class _Expected:
    """An answer that is waited for, of the node that has a session.

    Args:
        epoch: under which it will be.
        gate: opens with it.

    Attributes:
        came: it has answered.
        told: by a cursor, so what it has sent is known.
    """

    __slots__ = ("came", "epoch", "gate", "told")

    def __init__(self, epoch: int, gate: Gate) -> None:
        self.epoch = epoch
        self.gate = gate
        self.came = False
        self.told = False


@final
class Claims:
    """Claims sessions, where there are other nodes.

    Args:
        core: what every part stands on.
        wills: publishes those that a takeover makes due.
    """

    def __init__(self, core: BrokerCore, *, wills: WillPublisher) -> None:
        self._core = core
        self._wills: WillPublisher = wills
        self._expected: dict[str, _Expected] = {}
        """Answers that are waited for, by client."""
        self._opening: dict[str, int] = {}
        """Epochs of claims that held and whose sessions nobody has entered yet; 0 = a client has
        come to another node since, -1 = another node looks after the session."""

    async def read(self, client_id: str) -> StoredSession | None:
        """A session as everything submitted here has left it.

        Raises:
            StorageUnavailable: that is not known now.
        """
        core = self._core
        await core.pipeline.committed()
        if not core.committer.writable:
            raise StorageUnavailable("the log takes no records")
        return await core.database.open_session(client_id)

    async def claim(
        self,
        record: SessionRecord,
        *,
        seen: int,
        cursor: Cursor | None = None,
        taken_over: SessionRecord | None = None,
    ) -> bool:
        """Claim a session, and wait until that was applied.

        Args:
            record: names the new owner.
            seen: epoch of the owner that was read; 0 = there was no session.
            cursor: of a new session.
            taken_over: the session as its connection held it: its will is due now.

        Returns:
            Whether it is ours; else somebody else was first, and nothing has happened.

        Raises:
            StorageUnavailable: the log has failed.
        """
        core = self._core
        batch = core.committer.batch
        batch.claim_session(record, seen=seen)
        claim = batch.operations[-1]
        core.committer.wait(_Holds(self._opening, batch, claim), LEVEL_OS)
        if cursor is not None:
            batch.put_cursor(record.client_id, cursor, epoch=record.epoch)
        if taken_over is not None and taken_over.will is not None:
            self._wills.publish(msgspec.structs.replace(taken_over, epoch=record.epoch))
        await core.pipeline.committed()
        if not batch.is_sequenced:
            raise StorageUnavailable("the log takes no records")
        return claim not in batch.refused

    async def claim_held(
        self, record: SessionRecord, old: SessionRecord, *, ends: bool
    ) -> SessionRecord | None:
        """``claim`` a session whose record says that a connection holds it.

        Args:
            record: names the new owner.
            old: as it was read.
            ends: it is to be discarded then, and its will published with that.

        Returns:
            The record that holds now; None = somebody else was first.
        """
        core = self._core
        client_id, peers = record.client_id, core.peers
        assert peers is not None
        # A will that is delayed is not due: the client is back.
        due = None if ends or (old.will is not None and old.will.delay_s) else old
        asked = old.node != peers.node and peers.is_member(old.node, old.incarnation)
        expected = _Expected(record.epoch, core.scheduler.gate())
        self._expected[client_id] = expected
        try:
            if not await self.claim(record, seen=old.epoch, taken_over=None if asked else due):
                return None
            if asked:
                timer = core.scheduler.call_later(HANDOVER_US, expected.gate.open)
                await expected.gate
                timer.cancel()
            if not self.check(client_id):
                return None
            if asked and not expected.came:
                # What its node says behind this is refused.
                again = msgspec.structs.replace(record, epoch=record.epoch + 1)
                if not await self.claim(again, seen=record.epoch):
                    return None
                record = again
        finally:
            self._expected.pop(client_id, None)
        if asked and not expected.came and due is not None and due.will is not None:
            # What came before the second claim would have been heard by now: the will is not said.
            self._wills.publish(msgspec.structs.replace(due, epoch=record.epoch))
            await core.pipeline.committed()
        if expected.told:
            stored = await core.database.open_session(client_id)
            # What the node before did not know either, it has put into the record.
            return stored.record if stored is not None else record
        # Its node may have sent what no cursor tells, up to the claim.
        return msgspec.structs.replace(record, cut_offset=core.database.last_offset)

    def overtaken(self, record: SessionRecord) -> None:
        """Another node has a claim on a session that is being opened here, perhaps."""
        client_id = record.client_id
        epoch = self._opening.get(client_id, 0)
        if not epoch or epoch >= record.epoch:
            return
        # Who has no client for it ends it, or lets it go: that is done soon.
        self._opening[client_id] = 0 if record.connected else -1
        expected = self._expected.get(client_id)
        if expected is not None:
            expected.gate.open()
        if record.connected:
            # There is nothing to hand over: what it waits for is that this one says so.
            core = self._core
            core.committer.batch.speak(client_id, epoch=record.epoch)
            core.pipeline.schedule()

    def check(self, client_id: str) -> bool:
        """A session is about to be entered.

        Returns:
            Whether it is ours; else another node looks after it, without a client, and it is to be
            claimed again.

        Raises:
            MqttError: another node has claimed it since: its client is the later one.
        """
        epoch = self._opening.get(client_id)
        if not epoch:
            raise _overtaken()
        return epoch > 0

    async def renew(self, record: SessionRecord, cursor: Cursor) -> bool:
        """Put a new session in the place of one that was taken and ended, and wait until that was
        applied.

        Returns:
            Whether it is ours; else another node has claimed it meanwhile.

        Raises:
            StorageUnavailable: the log has failed.
        """
        core = self._core
        batch = core.committer.batch
        batch.put_session(record)
        put = batch.operations[-1]
        core.committer.wait(_Holds(self._opening, batch, put), LEVEL_OS)
        batch.put_cursor(record.client_id, cursor, epoch=record.epoch)
        await core.pipeline.committed()
        if not batch.is_sequenced:
            raise StorageUnavailable("the log takes no records")
        return put not in batch.refused

    def settle(self, client_id: str) -> None:
        """A session is open, or its opening has ended."""
        self._opening.pop(client_id, None)

    def answered(self, client_id: str, epoch: int, *, told: bool) -> None:
        """Another node has let go of a session; ``told`` with its cursor."""
        expected = self._expected.get(client_id)
        if expected is not None and expected.epoch == epoch:
            expected.came = True
            expected.told = expected.told or told
            expected.gate.open()

    async def take(self, record: SessionRecord) -> StoredSession | None:
        """Own a session as it is, to end it or to change it.

        Args:
            record: as it was read.

        Returns:
            The session under its new owner; None = somebody else was first, or came between the
            claim and the read: what is done with it is that one's business, and under that one's
            epoch nobody would refuse it.
        """
        client_id = record.client_id
        assert self._core.peers is not None
        epoch = epoch_after(self._core.peers, record.epoch)
        mine = msgspec.structs.replace(record, epoch=epoch)
        if record.connected:
            if await self.claim_held(mine, record, ends=True) is None:
                return None
        elif not await self.claim(mine, seen=record.epoch):
            return None
        stored = await self._core.database.open_session(client_id)
        if stored is None or stored.record.epoch != self._opening.get(client_id):
            return None
        return stored

    def check_taken(self, client_id: str) -> None:
        """A session that was to be taken for a client is not ours.

        Raises:
            MqttError: another node had claimed it after this one: its client is the later one.
        """
        if self._opening.get(client_id) == 0:
            raise _overtaken()

    def lost_too_often(self) -> MqttError:
        """What a client is told whose identifier others claim again and again."""
        return MqttError(SERVER_BUSY, "the client identifier is claimed elsewhere again and again")


def _overtaken() -> MqttError:
    return MqttError(SESSION_TAKEN_OVER, "the client has come to another node")
