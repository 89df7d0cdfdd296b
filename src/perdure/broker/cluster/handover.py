"""A session whose client has come to another node: let go of here, and handed over.

The claim is read while bytes of the client may still be on their way to this loop, sent before it
went: its last acknowledgements, its DISCONNECT. So its connection is left for a moment, and ends
then. What is handed over is under the epoch of the new owner, which has asked for it by its claim;
if that has gone on without it, all of it is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.dispatch.items import OffsetAdvance
from perdure.storage.saying import say, take_out
from perdure.storage.unsaid import Unsaid

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.claims import Claims
    from perdure.broker.sessions.wills import WillPublisher
    from perdure.errors import StorageError
    from perdure.model import SessionRecord
    from perdure.storage.batch import Batch

LONG_AGO_US: Final = 1
"""When a session has expired that its client has ended."""

LAST_WORDS_US: Final = 2_000
"""Time for what the client has sent before it went."""


@final
class _Back:
    """Waits for what a client has said to come back from the log.

    Args:
        handover: goes on then.
        session, claim: what is to be handed over, and to whom.
        was_open: its connection was ended for it.
    """

    __slots__ = ("_claim", "_handover", "_session", "_was_open")

    def __init__(
        self, handover: Handover, session: LiveSession, claim: SessionRecord, *, was_open: bool
    ) -> None:
        self._handover: Handover = handover
        self._session: LiveSession = session
        self._claim: SessionRecord = claim
        self._was_open: bool = was_open

    def committed(self) -> None:
        """It is back."""
        self._handover.go_on(self._session, self._claim, was_open=self._was_open)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Nobody knows: the new owner goes on without it."""
        self._handover.give_up(self._session)

    def broke(self, error: Exception) -> None:
        """Handing over does not fail."""
        raise error


@final
class Handover:
    """Lets go of sessions that have an owner elsewhere.

    Args:
        core: what every part stands on.
        claims: told of what is claimed while it is being opened here.
        lost: ends the connection of a session that has a later owner than this epoch.
        registry: who is connected here.
        wills: publishes the will that a takeover makes due.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        claims: Claims,
        lost: Callable[[str, int], None],
        registry: Registry,
        wills: WillPublisher,
    ) -> None:
        self._core = core
        self._claims: Claims = claims
        self._lost = lost
        self._registry: Registry = registry
        self._wills: WillPublisher = wills
        self._unsaid: dict[str, list[Unsaid]] = {}
        """What clients have said that does not count, while their last words are waited for."""

    def claimed(self, record: SessionRecord) -> None:
        """Another node has put a session under an owner.

        Only the first one that takes a session from this node is answered. A node that has stood
        still reads others behind it: of who has not waited, and of who has asked that one. Their
        owners have said the will, and what is said under them counts.
        """
        client_id = record.client_id
        session = self._registry.live.get(client_id)
        if session is None:
            session = self._registry.leaving.get(client_id)
            was_asked = session is None or session.is_asked
            if session is not None:
                session.is_asked = True
            if session is not None and record.connected and not was_asked:
                self._unsaid.setdefault(client_id, [])
                self._hand_over(session, record)
            else:
                self._claims.overtaken(record)
            return
        if session.record.epoch >= record.epoch:
            return
        if not record.connected:
            session.is_asked = True
            self._lost(record.client_id, record.epoch)
            return
        if session.is_asked:
            return  # who had it in between is asked
        session.is_asked = True
        self._unsaid.setdefault(client_id, [])
        hand_over = functools.partial(self._hand_over, session, record)
        self._core.scheduler.call_later(LAST_WORDS_US, hand_over)

    def discarded(self, client_id: str, epoch: int) -> None:
        """Another node has ended a session."""
        session = self._registry.live.get(client_id)
        if session is not None and session.record.epoch < epoch:
            self._lost(client_id, epoch)

    def silenced(self, batch: Batch) -> None:
        """A batch of this node has come back, in which publishers do not count any more.

        One whose session is being handed over has said it in time: on one broker it would count.
        """
        for client_id, unsaid in batch.silenced.items():
            if client_id in self._unsaid:
                self._unsaid[client_id].append(unsaid)

    def _have_last_words(self, session: LiveSession, words: list[Unsaid], epoch: int) -> None:
        """Say what a client has said here, before its session goes to the owner of an epoch: first
        what did not count, then what is in the open batch. Its will is said apart."""
        core = self._core
        batch, pipeline = core.committer.batch, core.pipeline
        client_id, will = session.client_id, session.will_said
        own = take_out(batch, client_id)
        pipeline.withdraw(client_id)
        for each in (*words, own):
            messages, placed = say(each.without(will), batch, client_id, epoch)
            for message in messages:
                pipeline.dispatch(message)
            for kept in placed:
                pipeline.dispatch_placed(OffsetAdvance(kept))

    def _hand_over(self, session: LiveSession, claim: SessionRecord) -> None:
        """End the connection of a session, if it has one, and hand the session over."""
        was_open = session.is_open
        if was_open:
            self._lost(session.client_id, claim.epoch)
        self.go_on(session, claim, was_open=was_open)

    def give_up(self, session: LiveSession) -> None:
        """A session is not handed over."""
        self._unsaid.pop(session.client_id, None)

    def go_on(self, session: LiveSession, claim: SessionRecord, *, was_open: bool) -> None:
        """Hand a session over when nothing that its client has said is on its way to the log: what
        is comes behind the claim, and must be said again before what came later."""
        core = self._core
        back = _Back(self, session, claim, was_open=was_open)
        if core.committer.wait_for_words(session.client_id, back):
            return
        peers, own = core.peers, session.record
        assert peers is not None
        identity = session.identity
        words = self._unsaid.pop(session.client_id, [])
        if not core.committer.writable or own.incarnation != peers.incarnation:
            return
        core.pipeline.now_us = core.clock.now_us()
        batch = core.committer.batch  # what changes the claim is refused if there is a later one
        self._have_last_words(session, words, claim.epoch)
        # Of one that has gone meanwhile nothing counts that was said then: this says it again.
        will = own.will if was_open else session.will_due
        if (claim.node, claim.incarnation) == (peers.node, peers.incarnation):
            # As it was: it is to be discarded, with its will unless the client took leave.
            if will is None and claim.will is not None:
                batch.claim_session(msgspec.structs.replace(claim, will=None), seen=claim.epoch)
        else:
            if will is not None and not will.delay_s:
                due = msgspec.structs.replace(own, epoch=claim.epoch, will=will)
                self._wills.publish(due, identity)
            if not was_open and not own.expiry_s:
                # Its client has ended it, which is refused: who has claimed it does it.
                ended = msgspec.structs.replace(
                    claim, connected=False, will=None, expires_at_us=LONG_AGO_US
                )
                batch.claim_session(ended, seen=claim.epoch)
            elif session.outbound.maybe_sent_offset > session.outbound.acked_offset:
                # A node before this one may have sent what is not acknowledged yet.
                doubtful = msgspec.structs.replace(
                    claim, cut_offset=session.outbound.maybe_sent_offset
                )
                batch.claim_session(doubtful, seen=claim.epoch)
        session.record = msgspec.structs.replace(own, epoch=claim.epoch)
        session.outbound.dirty = True
        session.put_cursor(batch)
        core.pipeline.schedule()
