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

A client is known from its first ``append`` or ``take`` until ``discard``; to an unknown one, every
call with an epoch finds nothing and says so, without an error. Every backend keeps topic, payload,
MQTT properties (their order within the packet aside), the QoS, RETAIN flag and identifiers to
deliver with, ``extra``, the time of publishing in milliseconds, and a Message Expiry Interval in
whole seconds. Publisher, published QoS and log offset may be missing in a message that is read:
a format that is not ours has no place for them. ``memory.MemoryDeviceQueue`` is the reference;
``tests/contract`` holds the others to it.

Backends raise ``StorageError`` for what the store does and ``UsageError`` for a wrong argument.
``StorageTimeout`` and ``StorageUnavailable`` leave open whether a write took place: every call
but an ``append`` without positions may simply be made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from perdure.errors import UsageError
from perdure.limits import PACKET_ID_MAX
from perdure.model import Message

QUEUE_LIMIT_MAX: Final = 65_535
"""Most entries of a queue: each needs a packet identifier of its own (seed: TBMQ)."""

DEFAULT_TTL_S: Final = 604_800
"""How long TBMQ keeps a message without a Message Expiry Interval, seconds."""

SERIAL_MAX: Final = 2**53 - 1
"""Largest serial, position, epoch and time: every backend counts exactly up to here (a float does
not beyond it, and sorted sets and scripts of Redis have no other number)."""


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
        serial: order key, greater than every one before; 0 = the next (the first is 1).
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
            if the message has expired; only ``forget_at_us`` ends it. Of a PUBLISH that expires
            before it, ``forget_at_us`` may read 0.
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


def is_expired(entry: QueuedEntry, now_us: int) -> bool:
    """Whether an entry is not owed any more."""
    if 0 < entry.forget_at_us <= now_us:
        return True
    # What is past its PUBREC is session state: the client waits for PUBREL [MQTT-4.3.3-7].
    return 0 < entry.message.expires_at_us <= now_us and entry.state is EntryState.PUBLISH


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
        entries: in order; expired entries are left out and deleted. May be empty although there
            are more.
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
        """Become the owner of a queue, which need not exist yet. The owner may take it again.

        Raises:
            Fenced: a later owner has it.
        """
        ...

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        """Append to the queues of any number of clients, in the given order for each.

        Each entry is looked at in turn: an entry whose packet identifier is needed again goes,
        whatever its state; over ``limit`` PUBLISH entries (1..65535) the oldest PUBLISH entries
        go, at last the new one's predecessors of the same call. All are reported.

        Returns:
            One result for each entry, in the same order.

        Raises:
            UsageError: a limit, identifier or serial out of its range (nothing was taken), or a
                serial not above the last one (nothing was taken for that client).
            StorageUnavailable, StorageTimeout: it is not known which clients' entries were taken:
                append them again, with the same positions.
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
            How many are PUBREL now (also those that were before, which stay as they are).

        Raises:
            Fenced: the epoch is not the owner's.
        """
        ...

    async def trim_through(self, client_id: str, serial: int, *, epoch: int) -> int:
        """Delete all entries up to a serial, inclusive; returns how many.

        Raises:
            Fenced: the epoch is not the owner's.
        """
        ...

    async def discard(self, client_id: str, *, epoch: int) -> bool:
        """Forget the client: entries, last packet identifier, owner. False if unknown.

        Raises:
            Fenced: the epoch is not the owner's (0 = nobody's, so far).
        """
        ...

    async def stats(self, client_id: str) -> QueueStats | None:
        """A queue in numbers; None for an unknown client."""
        ...

    def clients(self, *, after: str = "") -> AsyncIterator[QueueStats]:
        """All known clients, each once, in client-id order (UTF-8), from the first above
        ``after``; empty = from the start. A queue without entries is one too."""
        ...

    async def sweep(self, *, now_us: int, limit: int) -> int:
        """Delete up to ``limit`` expired entries that nobody has read; returns how many."""
        ...

    async def close(self) -> None:
        """Send what is buffered and give the connections back."""
        ...


def check_append(entries: Sequence[NewEntry], *, limit: int) -> None:
    """What every backend asks of an ``append`` before it does anything.

    Raises:
        UsageError: a number out of its range.
    """
    if not 1 <= limit <= QUEUE_LIMIT_MAX:
        raise UsageError(f"a queue holds 1 to {QUEUE_LIMIT_MAX} messages, not {limit}")
    for entry in entries:
        if entry.qos not in (1, 2):
            raise UsageError(f"a queue holds QoS 1 and 2, not {entry.qos}")
        if not 0 <= entry.packet_id <= PACKET_ID_MAX:
            raise UsageError(f"{entry.packet_id} is no packet identifier")
        if not 0 <= entry.serial <= SERIAL_MAX:
            raise UsageError(f"serial {entry.serial} is not in 0..{SERIAL_MAX}")
        if not 0 <= entry.position <= SERIAL_MAX:
            raise UsageError(f"position {entry.position} is not in 0..{SERIAL_MAX}")
        if not 0 <= entry.forget_at_us <= SERIAL_MAX:
            raise UsageError(f"forget_at_us {entry.forget_at_us} is not in 0..{SERIAL_MAX}")


def next_packet_id(last: int) -> int:
    """The identifier after ``last``: 65535 is followed by 1, and 0 means none yet."""
    return last % PACKET_ID_MAX + 1
