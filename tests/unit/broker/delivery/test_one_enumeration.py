"""Catch-up, the queue that is shown, explain, the limits and the audit count the same messages."""

from __future__ import annotations

import asyncio
import random

import pytest

from perdure.broker.delivery.pending import PendingQueue
from perdure.config.schema import Config, SessionConfig
from perdure.model import Cursor, StoredSession
from perdure.mqtt.packets import PUBACK, PUBREC, PUBREL, Ack, Publish
from perdure.pipeline.jobs.audit_sessions import audit_sessions
from perdure.pipeline.jobs.slow import slow_sessions
from perdure.server.inspect import session_details
from perdure.storage.contract import Database
from perdure.storage.device_queue import EntryState, QueuedEntry
from tests.support.sim_broker import SimBroker
from tests.support.staged import Staged
from tests.unit.broker.harness import QUIET, Client, make_sim


def leave_behind(seed: int) -> tuple[SimBroker, Client]:
    """A session that is offline, with subscriptions that began, changed and ended on the way,
    and acknowledgements out of order."""
    chance = random.Random(seed)
    sim = make_sim(
        config=Config(sys=QUIET, session=SessionConfig(feed_chunk=chance.choice((2, 5, 64))))
    )
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    reader = Client(sim, "r", acks=False)
    reader.connect(receive_maximum=chance.choice((8, 40)))
    reader.subscribe("always", qos=1)
    number = 0
    for _ in range(chance.randint(3, 6)):
        name = chance.choice(("t/#", "t/+", "t/1"))
        match chance.randrange(4):
            case 0:
                reader.unsubscribe(name)
            case 1:
                reader.subscribe(name, qos=chance.choice((0, 1, 2)))
            case _:
                reader.subscribe(name, qos=chance.choice((1, 2)), no_local=chance.randrange(2))
        for _ in range(chance.randint(1, 8)):
            number += 1
            source = chance.choice((publisher, publisher, reader))
            source.publish(f"t/{chance.randrange(3)}", b"%d" % number, qos=chance.randrange(3))
        sim.run_for(20_000)
        sent = [packet for packet in reader.received if isinstance(packet, Publish) and packet.qos]
        for packet in chance.sample(sent, min(2, len(sent))):
            reader.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
        sim.run_for(20_000)
    reader.cut()
    for _ in range(2):
        publisher.publish("always", b"", qos=1)
    for _ in range(chance.randint(0, 20)):
        number += 1
        publisher.publish(f"t/{chance.randrange(3)}", b"%d" % number, qos=chance.randrange(3))
    sim.run_for(3_000_000)
    return sim, reader


async def queue_of(database: Database, now_us: int) -> tuple[list[QueuedEntry], int]:
    stored = await stored_session(database)
    queue = PendingQueue(database, stored, now_us=now_us)
    return [entry async for entry in queue.entries()], queue.last_serial


async def stored_session(database: Database) -> StoredSession:
    stored = await database.open_session("r")
    assert stored is not None
    return stored


async def problems(database: Database) -> list[str]:
    found: list[str] = []
    await audit_sessions(database, lambda kind, subject, detail: found.append(detail))
    return found


@pytest.mark.trap(33)
@pytest.mark.parametrize("seed", range(24))
def test_all_agree(seed: int) -> None:
    sim, reader = leave_behind(seed)
    services = sim.live.services
    database = services.database
    now_us = services.clock.now_us()
    entries, last_serial = asyncio.run(queue_of(database, now_us))

    # An operator's look, which counts.
    details = asyncio.run(session_details(database, "r", now_us, running=True))
    assert details is not None
    assert (details.owed_messages, details.owed_is_exact) == (len(entries), True)
    rows = asyncio.run(slow_sessions(database, top=3))
    assert [row["pending"] for row in rows] == ([len(entries)] if entries else [])

    # The audit finds nothing, and nothing beyond the last message: one more is one too many.
    assert asyncio.run(problems(database)) == []
    stored = asyncio.run(stored_session(database))
    cursor, epoch = stored.cursor, stored.record.epoch
    for sent, is_healthy in ((last_serial, True), (last_serial + 1, False)):
        batch = Staged(database)
        batch.put_cursor(
            "r",
            Cursor(cursor.offset, cursor.serial, cursor.settled, cursor.released, sent),
            epoch=epoch,
        )
        batch.write()
        assert (asyncio.run(problems(database)) == []) is is_healthy
    batch = Staged(database)
    batch.put_cursor("r", cursor, epoch=epoch)
    batch.write()

    # The client comes back.
    reader.received.clear()
    reader.connect(receive_maximum=1_000)
    sim.run_for(500_000)
    came = [
        (packet.packet_id, packet.kind == PUBREL if isinstance(packet, Ack) else False)
        for packet in reader.received
        if isinstance(packet, Publish | Ack)
    ]
    assert came == [(entry.packet_id, entry.state is EntryState.PUBREL) for entry in entries]
    outbound = services.registry.live["r"].outbound
    assert outbound.next_serial == last_serial + 1


@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("seed", range(24))
def test_a_limit_counts_what_was_not_sent(seed: int, less: int) -> None:
    """A limit of as many messages as were not sent drops none of them, one less drops one."""
    sim, reader = leave_behind(seed)
    services = sim.live.services
    entries, _ = asyncio.run(queue_of(services.database, services.clock.now_us()))
    stored = asyncio.run(stored_session(services.database))
    fresh = [entry for entry in entries if entry.serial > stored.cursor.sent]
    services.session_config = SessionConfig(pending_messages_max=len(fresh) - less)
    reader.received.clear()
    reader.connect(receive_maximum=1_000)
    sim.run_for(500_000)
    assert services.metrics.messages_dropped_queue_full == less
    sent = [packet.packet_id for packet in reader.received if isinstance(packet, Publish | Ack)]
    expected = [entry.packet_id for entry in entries]
    if less:
        expected.remove(fresh[0].packet_id)
    assert sent == expected
