"""What a queue is said to hold is what the client gets when it comes back."""

from __future__ import annotations

import asyncio

import pytest

from perdure.broker.delivery.pending import PendingQueue
from perdure.config.schema import Config, SessionConfig
from perdure.model import Cursor, InboxEntry, Message, SessionRecord
from perdure.mqtt.packets import PUBACK, PUBREC, PUBREL, Ack, Properties, Publish
from perdure.storage.device_queue import EntryState, QueuedEntry
from perdure.storage.memory import MemoryDatabase
from tests.support.sim_broker import SimBroker
from tests.support.staged import Staged
from tests.unit.broker.harness import QUIET, Client, make_sim

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


async def _read(sim: SimBroker, client_id: str) -> tuple[list[QueuedEntry], int]:
    database = sim.live.services.database
    stored = await database.open_session(client_id)
    assert stored is not None
    queue = PendingQueue(database, stored, now_us=sim.live.services.clock.now_us())
    return [entry async for entry in queue.entries()], queue.last_packet_id


def owed(sim: SimBroker, client_id: str) -> tuple[list[QueuedEntry], int]:
    """The queue of a session, and its last packet identifier."""
    return asyncio.run(_read(sim, client_id))


def as_sent(entry: QueuedEntry) -> tuple[object, ...]:
    if entry.state is EntryState.PUBREL:
        return ("PUBREL", entry.packet_id)
    message = entry.message
    return (
        "PUBLISH",
        entry.packet_id,
        message.topic,
        message.payload,
        entry.qos,
        entry.retain,
        entry.identifiers,
    )


def came(client: Client) -> list[tuple[object, ...]]:
    """What a client has received since it connected."""
    found: list[tuple[object, ...]] = []
    for packet in client.received:
        if isinstance(packet, Publish):
            found.append(
                (
                    "PUBLISH",
                    packet.packet_id,
                    packet.topic,
                    packet.payload,
                    packet.qos,
                    packet.retain,
                    packet.identifiers,
                )
            )
        elif isinstance(packet, Ack) and packet.kind == PUBREL:
            found.append(("PUBREL", packet.packet_id))
    return found


def build(sim: SimBroker) -> Client:
    """A session that is offline in the middle of everything."""
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    publisher.publish("t/retained", b"kept", retain=True)
    reader = Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t/#", qos=2)
    named = Properties(subscription_identifiers=(7,))
    reader.subscribe("t/+", qos=1, properties=named)
    for number in range(12):
        publisher.publish(f"t/{number % 3}", b"%d" % number, qos=1 + number % 2)
    sim.run_for(50_000)
    sent = [packet for packet in reader.received if isinstance(packet, Publish)]
    assert len(sent) > 8
    # Out of order: one of QoS 1 done, one of QoS 2 past its PUBREC.
    done = next(packet for packet in sent[2:] if packet.qos == 1)
    half = next(packet for packet in sent[2:] if packet.qos == 2)
    reader.send(Ack(PUBACK, done.packet_id))
    reader.send(Ack(PUBREC, half.packet_id))
    sim.run_for(50_000)
    reader.cut()
    for number in range(12, 30):
        publisher.publish(f"t/{number % 3}", b"%d" % number, qos=number % 3)
    publisher.publish("t/x", b"expires", expiry_s=1)
    publisher.publish("elsewhere", b"not for it")
    publisher.publish("t/last", b"last", qos=2)
    sim.run_for(3 * SECOND_US)
    return reader


@pytest.mark.trap(12)
@pytest.mark.trap(33)
@pytest.mark.parametrize("chunk", [3, 256])
def test_it_is_what_the_client_gets_when_it_comes_back(chunk: int) -> None:
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(feed_chunk=chunk)))
    reader = build(sim)
    entries, last_packet_id = owed(sim, "r")
    assert {entry.state for entry in entries} == {EntryState.PUBLISH, EntryState.PUBREL}
    assert b"expires" not in [entry.message.payload for entry in entries]
    reader.received.clear()
    reader.connect()
    sim.run_for(100_000)
    assert came(reader) == [as_sent(entry) for entry in entries]
    assert entries[-1].message.payload == b"last"
    assert last_packet_id == entries[-1].packet_id
    # It was only looked at.
    assert sim.live.services.registry.live["r"].outbound.inflight.count == len(entries)


def record(client_id: str = "c", **fields: int) -> SessionRecord:
    return SessionRecord(
        client_id,
        epoch=1,
        created_at_us=NOW_US,
        expiry_s=3600,
        connected=False,
        changed_at_us=NOW_US,
        **fields,
    )


def message(offset: int, *, expires_at_us: int = 0) -> Message:
    return Message(
        "t", b"%d" % offset, 2, expires_at_us=expires_at_us, published_at_us=NOW_US, offset=offset
    )


async def of_inbox(
    *entries: InboxEntry, cursor: Cursor | None = None, cut_offset: int = 0
) -> tuple[list[QueuedEntry], int]:
    database = MemoryDatabase()
    batch = Staged(database)
    batch.put_session(record(cut_offset=cut_offset))
    batch.put_cursor("c", cursor or Cursor(), epoch=1)
    for entry in entries:
        batch.put_inbox("c", entry, epoch=1)
    # Something later, so that the log reaches beyond them.
    batch.append(Message("else", b"", 1), NOW_US + SECOND_US)
    batch.write()
    stored = await database.open_session("c")
    assert stored is not None
    queue = PendingQueue(database, stored, now_us=NOW_US)
    return [entry async for entry in queue.entries()], queue.last_packet_id


async def test_numbers_that_another_broker_gave_are_kept() -> None:
    entries, last = await of_inbox(
        InboxEntry(10, message(10), qos=1, serial=65_535),
        InboxEntry(20, None, qos=1),
        InboxEntry(30, message(30), qos=2, serial=65_600),
        InboxEntry(40, message(40), qos=1),
        cursor=Cursor(0, 0, settled=(), released=(65_600,)),
    )
    assert [(entry.serial, entry.packet_id, entry.state.name) for entry in entries] == [
        (65_535, 65_535, "PUBLISH"),
        (65_600, 65, "PUBREL"),
        (65_601, 66, "PUBLISH"),
    ]
    assert entries[1].message.payload == b""
    assert last == 66


async def test_what_was_sent_before_it_expired_is_still_owed() -> None:
    past = NOW_US - SECOND_US
    inbox = [
        InboxEntry(10, message(10, expires_at_us=past), qos=1),
        InboxEntry(20, message(20, expires_at_us=past), qos=1),
        InboxEntry(30, message(30), qos=1, forget_at_us=past),
        InboxEntry(40, message(40), qos=1, forget_at_us=NOW_US + SECOND_US),
    ]
    entries, last = await of_inbox(*inbox, cursor=Cursor(sent=1))
    assert [entry.serial for entry in entries] == [1, 4]
    assert (entries[1].forget_at_us, last) == (NOW_US + SECOND_US, 4)
    entries, _ = await of_inbox(*inbox, cut_offset=20)
    assert [entry.serial for entry in entries] == [1, 2, 4]


async def test_an_empty_queue_remembers_its_last_number() -> None:
    assert await of_inbox() == ([], 0)
    assert await of_inbox(cursor=Cursor(5, 65_537)) == ([], 2)
