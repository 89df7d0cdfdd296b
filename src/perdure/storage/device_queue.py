"""What every device queue promises: for each persistent client one ordered queue of messages.

The design is TBMQ's (persistent DEVICE clients): an entry is a PUBLISH that is owed, or the PUBREL
that is owed once its PUBREC came; the last packet identifier is kept apart from the entries, so an
empty queue goes on counting. ``serial`` is the order and never wraps; ``packet_id`` wraps from
65535 to 1 and may even repeat in data that another broker wrote, so nothing is ordered by it.

Two kinds of writer: the *owner* of a session passes the epoch with which it took the queue over,
and is refused once a later owner has; whoever only appends (routing a message to an offline
client) passes none. Time is an argument everywhere. A call of one client is atomic; calls of
different clients are not. When a coroutine returns, its writes are as durable as the server says
(``docs/howto/redis.md``, ``docs/howto/postgres.md``).

Backends raise ``StorageError`` and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from perdure.model import Message

QUEUE_LIMIT_MAX: Final = 65_535
"""Most entries of a queue: each needs a packet identifier of its own (seed: TBMQ)."""

DEFAULT_TTL_S: Final = 604_800
"""How long TBMQ keeps a message without a Message Expiry Interval, seconds."""


class EntryState(IntEnum):
    """What the client is owed of an entry."""

    PUBLISH = 0
    PUBREL = 1


class NewEntry(msgspec.Struct, frozen=True):
    """A message to append to the queue of one client.

    Attributes:
        client_id: whose queue.
        message: what to deliver. Its ``qos`` is the published one.
        qos: QoS to deliver with, 1 or 2.
        retain: RETAIN flag to deliver with.
        identifiers: subscription identifiers to deliver with.
        position: log position of the message. An append at or below the highest position that
            the queue has taken is a repeat and changes nothing; 0 = always new.
        serial: order key, greater than every one before; 0 = the next.
        packet_id: 1..65535 to keep an identifier that the client may know; 0 = the next.
        state: PUBREL for an exchange that was taken over past its PUBREC.
        forget_at_us: wall time after which the queue forgets it; 0 = never. The MQTT expiry,
            ``message.expires_at_us``, holds besides: an entry past either is not delivered.
        extra: opaque bytes of the owner, stored with the entry.
    """

    client_id: str
    message: Message
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    position: int = 0
    serial: int = 0
    packet_id: int = 0
    state: EntryState = EntryState.PUBLISH
    forget_at_us: int = 0
    extra: bytes = b""


class QueuedEntry(msgspec.Struct, frozen=True):
    """An entry as it is read.

    Attributes:
        serial: its place; ascending within a page and from page to page.
        packet_id: 1..65535; 0 = none was ever assigned (NULL in PostgreSQL data of TBMQ 1.x).
        state: what is owed.
        message: the message; for a PUBREL its payload may be gone (empty).
        qos, retain, identifiers, forget_at_us, extra: as in ``NewEntry``. A PUBREL is owed even
            if the message has expired; only ``forget_at_us`` ends it.
    """

    serial: int
    packet_id: int
    state: EntryState
    message: Message
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    forget_at_us: int = 0
    extra: bytes = b""


class Trimmed(msgspec.Struct, frozen=True):
    """An entry that had to go: the limit was reached or its packet identifier was needed.

    The owner must look whether it is in flight; nobody else can know.
    """

    serial: int
    packet_id: int
    state: EntryState


class Appended(msgspec.Struct, frozen=True):
    """What became of one ``NewEntry``.

    Attributes:
        serial, packet_id: what it got; 0, 0 if it was a repeat.
        repeated: its position was taken before.
        trimmed: what had to go for it, oldest first.
    """

    serial: int
    packet_id: int
    repeated: bool = False
    trimmed: tuple[Trimmed, ...] = ()


class QueuePage(msgspec.Struct, frozen=True):
    """One page of a queue.

    Attributes:
        entries: in order; expired PUBLISH entries are left out and deleted.
        next_after: pass as ``after_serial`` for the next page; None = no more.
    """

    entries: list[QueuedEntry]
    next_after: int | None


class QueueStats(msgspec.Struct, frozen=True):
    """A queue in numbers.

    Attributes:
        client_id: whose.
        publish_count, pubrel_count: entries by state (expired ones may still be counted).
        payload_bytes: approximate size of what is stored, bytes.
        last_packet_id: 0 = none assigned yet.
        last_serial: 0 = none assigned yet.
        last_position: highest log position taken.
        epoch: of the owner; 0 = never owned.
    """

    client_id: str
    publish_count: int
    pubrel_count: int
    payload_bytes: int
    last_packet_id: int
    last_serial: int
    last_position: int
    epoch: int


class DeviceQueue(Protocol):
    """The queues of all persistent clients in one store."""

    async def take(self, client_id: str, *, epoch: int) -> QueueStats:
        """Become the owner of a queue, which need not exist yet.

        Raises:
            Fenced: a later owner has it.
        """
        ...

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        """Append to the queues of any number of clients, in the given order for each.

        Over ``limit`` PUBLISH entries (1..65535) the oldest PUBLISH entries go; an entry whose
        packet identifier is needed again goes too, whatever its state. Both are reported.

        Returns:
            One result for each entry, in the same order.

        Raises:
            UsageError: a limit, identifier or serial out of its range.
            StorageUnavailable: it is not known which clients' entries were taken: append them
                again, with the same positions.
        """
        ...

    async def read(
        self, client_id: str, *, after_serial: int, limit: int, bytes_max: int, now_us: int
    ) -> QueuePage:
        """A page of what the client is owed, oldest first.

        Args:
            after_serial: exclusive lower bound; -1 = from the start (TBMQ counts from 0).
            limit: most entries, >= 1.
            bytes_max: most payload bytes of a page; one entry is always returned.
            now_us: what has expired by then is deleted, also references whose message is gone.
        """
        ...

    async def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> int:
        """Delete entries: PUBACK, PUBCOMP, or a PUBREC with an error. Unknown ones are ignored.

        Where several entries carry an identifier (data of TBMQ 1.x) the oldest goes.

        Returns:
            How many were deleted.

        Raises:
            Fenced: the epoch is not the owner's.
        """
        ...

    async def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int = 0
    ) -> int:
        """PUBREC: turn PUBLISH entries into PUBREL, which keep place and identifier and lose
        their payload and their expiry; ``forget_at_us`` is their own lifetime, 0 = for ever.

        Returns:
            How many are PUBREL now (also those that were before).

        Raises:
            Fenced: the epoch is not the owner's.
        """
        ...

    async def trim_through(self, client_id: str, serial: int, *, epoch: int) -> int:
        """Delete all entries up to a serial, inclusive; returns how many."""
        ...

    async def discard(self, client_id: str, *, epoch: int) -> bool:
        """Forget the client: entries, last packet identifier, owner. False if unknown."""
        ...

    async def stats(self, client_id: str) -> QueueStats | None:
        """A queue in numbers; None for an unknown client."""
        ...

    def clients(self, *, after: str = "") -> AsyncIterator[QueueStats]:
        """All queues, each once; in client-id order where the store has one. A queue without
        entries is one too while its last packet identifier is known."""
        ...

    async def sweep(self, *, now_us: int, limit: int) -> int:
        """Delete up to ``limit`` expired entries that nobody has read; returns how many."""
        ...

    async def close(self) -> None:
        """Send what is buffered and give the connections back."""
        ...
