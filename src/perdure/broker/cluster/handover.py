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
    from perdure.model import Message, SessionRecord
    from perdure.storage.batch import Batch

LONG_AGO_US: Final = 1
"""When a session has expired that its client has ended."""

LAST_WORDS_US: Final = 2_000
"""Time for what the client has sent before it went."""


@final
class _Handed:
    """A session that the open batch hands over.

    Args:
        epoch: of its new owner.
        will: as it was said before.

    Attributes:
        messages, operations: how many the batch has of what did not count; what the client says
            in the batch besides came later, and stands behind them.
    """

    __slots__ = ("epoch", "messages", "operations", "will")

    def __init__(self, epoch: int, will: Message | None) -> None:
        self.epoch: int = epoch
        self.will: Message | None = will
        self.messages: int = 0
        self.operations: int = 0


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
        self._handing: Batch | None = None
        """The batch that was the open one when a session was handed over."""
        self._handed: dict[str, _Handed] = {}
        """Those that it hands over."""

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
        self._unsaid[client_id] = []
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
        is_handing = self._handing is self._core.committer.batch
        for client_id, unsaid in batch.silenced.items():
            if client_id in self._unsaid:
                self._unsaid[client_id].append(unsaid)
            elif is_handing and client_id in self._handed:
                handed = self._handed[client_id]
                self._say_again(client_id, [unsaid.without(handed.will)], handed)

    def _have_last_words(self, session: LiveSession, words: list[Unsaid], epoch: int) -> None:
        """Say what a client has said here, before its session goes to the owner of an epoch; of its
        will it is said apart."""
        client_id, will = session.client_id, session.will_said
        batch = self._core.committer.batch
        if self._handing is not batch:
            self._handing = batch
            self._handed = {}
        handed = self._handed[client_id] = _Handed(epoch, will)
        self._say_again(client_id, [each.without(will) for each in words], handed, will)

    def _say_again(
        self, client_id: str, words: list[Unsaid], handed: _Handed, will: Message | None = None
    ) -> None:
        """Say for the new owner what a client has said: behind what is said again already, and in
        front of what else it says in the open batch, but for its will."""
        core = self._core
        batch, pipeline = core.committer.batch, core.pipeline
        own = take_out(batch, client_id).without(will)
        before, rest = own.split(handed.messages, handed.operations)
        pipeline.withdraw(client_id)
        for each in words:
            handed.messages += len(each.messages)
            handed.operations += len(each.operations)
        for each in (before, *words, rest):
            messages, placed = say(each, batch, client_id, handed.epoch)
            for message in messages:
                pipeline.dispatch(message)
            for kept in placed:
                pipeline.dispatch_placed(OffsetAdvance(kept))

    def _hand_over(self, session: LiveSession, claim: SessionRecord) -> None:
        core = self._core
        peers, own = core.peers, session.record
        assert peers is not None
        was_open = session.is_open
        identity = session.identity
        if was_open:
            self._lost(session.client_id, claim.epoch)
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
            elif own.cut_offset > session.outbound.acked_offset:
                # A node before this one may have sent what is not acknowledged yet.
                doubtful = msgspec.structs.replace(claim, cut_offset=own.cut_offset)
                batch.claim_session(doubtful, seen=claim.epoch)
        session.record = msgspec.structs.replace(own, epoch=claim.epoch)
        session.outbound.dirty = True
        session.put_cursor(batch)
        core.pipeline.schedule()
