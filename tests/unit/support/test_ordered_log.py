"""The toy log: two submitters, one order that neither decides, and the same state at both."""

from __future__ import annotations

import random

import pytest

from perdure.model import Cursor, InboxEntry, Subscription
from perdure.storage.batch import Batch
from tests.contract.values import NOW_US, entry, message, record
from tests.support.ordered_log import LateDatabase, Neighbour, OrderedLog, digest, messages_of
from tests.support.storage import ProcessDied


def nodes(seed: int = 0) -> tuple[OrderedLog, LateDatabase, LateDatabase]:
    log = OrderedLog(random.Random(seed))
    return log, LateDatabase(log=log), LateDatabase(log=log)


def appended(database: LateDatabase, payload: bytes, now_us: int = NOW_US) -> Batch:
    batch = Batch()
    batch.append(message(payload=payload))
    database.submit(batch, now_us)
    return batch


def test_nothing_has_an_offset_before_the_log_gives_it_back() -> None:
    log, here, _ = nodes()
    told: list[None] = []
    here.on_sequenced = lambda: told.append(None)
    batch = appended(here, b"x")
    assert (batch.is_sequenced, batch.messages[0].offset, here.last_offset) == (False, 0, 0)
    assert not told
    log.sequence_all()
    assert (batch.is_sequenced, batch.messages[0].offset) == (True, NOW_US)
    assert here.last_offset == NOW_US
    assert len(told) == 1


def test_the_log_decides_and_each_submitter_keeps_its_own_order() -> None:
    orders = set()
    for seed in range(8):
        log, here, there = nodes(seed)
        for number in range(3):
            appended(here, b"h%d" % number)
            appended(there, b"t%d" % number)
        log.sequence_all()
        assert messages_of(here) == messages_of(there)
        payloads = [m.payload for m in here.inner.state.log]
        for name in (b"h", b"t"):
            own = [payload for payload in payloads if payload.startswith(name)]
            assert own == [name + b"%d" % number for number in range(3)]
        orders.add(tuple(payloads))
    assert len(orders) > 1


def test_the_time_is_the_logs_own() -> None:
    log, here, there = nodes()
    appended(here, b"x", NOW_US + 50)
    log.sequence_all()
    late = appended(there, b"y", NOW_US - 50)
    log.sequence_all()
    assert late.first_offset == NOW_US + 51


def test_who_is_overtaken_in_the_log_is_refused_there_alike() -> None:
    """The operation that is refused takes nothing else of its batch with it."""
    log, here, there = nodes()
    for client_id in ("c1", "c2"):
        batch = Batch()
        batch.put_session(record(client_id, epoch=1))
        here.submit(batch, NOW_US)
    log.sequence_all()
    claim, stale = Batch(), Batch()
    claim.put_session(record("c1", epoch=2))
    there.submit(claim, NOW_US)
    log.sequence_all()
    stale.append(message("kept"))
    stale.put_cursor("c1", Cursor(5), epoch=1)
    stale.put_cursor("c2", Cursor(6), epoch=1)
    here.submit(stale, NOW_US)
    log.sequence_all()
    assert [operation.client_id for operation in stale.refused] == ["c1"]
    for database in (here, there):
        sessions = database.inner.state.sessions
        assert (sessions["c1"].cursor, sessions["c2"].cursor) == (Cursor(), Cursor(6))
        assert [m.topic for m in database.inner.state.log] == ["kept"]
    assert digest(here) == digest(there)


def test_two_nodes_of_one_log_hold_the_same() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        log = OrderedLog(chance)
        here = LateDatabase(log=log)
        neighbour = Neighbour(log, chance)
        batch = Batch()
        batch.put_session(record("c", epoch=1))
        here.submit(batch, 0)
        placed: list[InboxEntry] = []
        for number in range(40):
            batch = Batch()
            batch.extend([message(f"t/{number % 3}", b"%d" % n) for n in range(number % 4)])
            batch.place(entry(0))
            own = entry(0, b"%d" % number)
            batch.place(own)
            batch.put_inbox("c", own, epoch=1)
            placed.append(own)
            if number % 3 == 2:
                old = chance.choice(placed)
                batch.put_tombstone("c", old, epoch=1)
                batch.put_group_entry("g/a", old)
                batch.delete_group_entry("g/a", chance.choice(placed))
            sub = Subscription(f"t/{number % 5}", qos=1, since_offset=number)
            batch.put_subscription("c", sub, epoch=1)
            here.submit(batch, NOW_US + number)
            if chance.random() < 0.5:
                log.sequence_one()
        log.before_record = None
        log.sequence_all()
        assert digest(here) == digest(neighbour.node), seed
        assert messages_of(here) == messages_of(neighbour.node), seed


def test_what_had_arrived_when_a_node_died_counts_and_the_rest_is_lost() -> None:
    found = set()
    for seed in range(20):
        log, here, there = nodes()
        for number in range(3):
            appended(here, b"%d" % number)
        again = here.crash(power=True, chance=random.Random(seed))
        assert messages_of(again) == messages_of(there)
        found.add(len(messages_of(again)))
        appended(again, b"later")
        log.sequence_all()
        assert messages_of(again) == messages_of(there)
    assert found == {0, 1, 2, 3}


def test_a_process_may_die_once_its_batch_is_on_its_way() -> None:
    log, here, there = nodes()
    here.die_in, here.die_after_write = 0, True
    with pytest.raises(ProcessDied):
        appended(here, b"x")
    log.sequence_all()
    assert len(messages_of(there)) == 1
