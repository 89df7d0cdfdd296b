"""A client's queue in the one form that every source gives and every target takes.

Knows no store. Invariant: two queues that deliver the same bytes in the same order have the same
``QueueSum``, wherever each was read; that is how a migration is verified.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

import msgspec

from perdure.model import Message
from perdure.mqtt.encode import forward_properties, properties_from_forward

EXPIRY_TOLERANCE_MS: Final = 1_000
"""Stores keep expiry in microseconds, milliseconds or seconds: the most that rounding moves it."""


class PendingEntry(msgspec.Struct, frozen=True, array_like=True):
    """A PUBLISH, or the PUBREL of one, that a client is owed.

    Attributes:
        place: where it stands in the queue, from 1, ascending; the same in every reading, also
            after entries before it have expired.
        packet_id: 1..65535, after ``identifiers.resolve``.
        released: it is past its PUBREC: only PUBREL is owed, and for as long as it takes.
        topic, payload, qos, retain: to deliver; empty where ``released`` may have lost them.
        properties: forwarded properties in wire form, as ``Message.properties``.
        identifiers: subscription identifiers.
        published_at_us: when the broker took it.
        expires_at_us: end of its Message Expiry Interval; 0 = it has none.
        forget_at_us: end of its lifetime in the queue, of which clients are not told; 0 = never.
        publisher: client id of its publisher, where the store knows it.
    """

    place: int
    packet_id: int
    released: bool
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    properties: bytes = b""
    identifiers: tuple[int, ...] = ()
    published_at_us: int = 0
    expires_at_us: int = 0
    forget_at_us: int = 0
    publisher: str = ""

    def is_owed(self, now_us: int) -> bool:
        """Whether it is still to be delivered."""
        if 0 < self.forget_at_us <= now_us:
            return False
        return self.released or not 0 < self.expires_at_us <= now_us

    def message(self, offset: int = 0) -> Message:
        """What is delivered, at a place in the log if it has one."""
        return Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.publisher,
            self.properties,
            self.expires_at_us,
            self.published_at_us,
            offset,
        )


class Losses(msgspec.Struct, array_like=True):
    """What of a queue is not carried over, or not as it was.

    Attributes:
        expired: past their expiry or lifetime.
        dangling: references to messages that are gone.
        repeated: PUBREL of an exchange that another entry stands for already.
        over_limit: the oldest, beyond the largest queue.
        orphaned: PUBREL of a shared queue, of which nobody knows whose it is.
        renumbered: carried over, with another packet identifier, because it had none or that of
            another entry.
        damaged: one sentence for each entry that cannot be read.
    """

    expired: int = 0
    dangling: int = 0
    repeated: int = 0
    over_limit: int = 0
    orphaned: int = 0
    renumbered: int = 0
    damaged: list[str] = []

    def add(self, other: Losses) -> None:
        """Count another's too."""
        self.expired += other.expired
        self.dangling += other.dangling
        self.repeated += other.repeated
        self.over_limit += other.over_limit
        self.orphaned += other.orphaned
        self.renumbered += other.renumbered
        self.damaged += other.damaged


class PendingPage(msgspec.Struct, frozen=True, array_like=True):
    """Some entries of one queue; the pages of a queue come one after the other.

    Attributes:
        client_id: whose.
        last_packet_id: the identifier after which the next message goes; 0 = none was given.
        entries: in order.
        is_first, is_last: where in the queue the page stands.
        losses: found while this page was read.
    """

    client_id: str
    last_packet_id: int
    entries: list[PendingEntry]
    is_first: bool = True
    is_last: bool = True
    losses: Losses = msgspec.field(default_factory=Losses)


class QueueSum(msgspec.Struct, frozen=True, array_like=True):
    """A queue in three numbers that must be equal on both sides.

    Attributes:
        count: entries.
        digest: of what is delivered, in order.
        expiry_ms: sum of the expiry times, unix milliseconds; compared with a tolerance.
    """

    count: int = 0
    digest: str = ""
    expiry_ms: int = 0

    def matches(self, other: QueueSum) -> bool:
        """Whether both are of the same queue."""
        return (
            self.count == other.count
            and self.digest == other.digest
            and abs(self.expiry_ms - other.expiry_ms) <= self.count * EXPIRY_TOLERANCE_MS
        )


@final
class Summing:
    """Adds up one queue, entry by entry."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._count = 0
        self._expiry_ms = 0

    def add(self, entry: PendingEntry) -> None:
        """The next entry."""
        self._count += 1
        if entry.released:
            # Its message may be gone; what is owed is the identifier.
            self._hash.update(msgspec.msgpack.encode((entry.packet_id, True)))
            return
        self._expiry_ms += entry.expires_at_us // 1000
        what = (
            entry.packet_id,
            False,
            entry.topic,
            entry.payload,
            entry.qos,
            entry.retain,
            _canonical(entry.properties),
            entry.identifiers,
            bool(entry.expires_at_us),
        )
        self._hash.update(msgspec.msgpack.encode(what))

    def result(self) -> QueueSum:
        """The sum of what was added."""
        return QueueSum(self._count, self._hash.hexdigest(), self._expiry_ms)


def _canonical(properties: bytes) -> bytes:
    """Properties in one order: a store may give them back in another."""
    if not properties:
        return b""
    return forward_properties(properties_from_forward(properties))
