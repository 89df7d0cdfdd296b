"""The checkers see what they are for."""

from __future__ import annotations

import random

from tests.support.checkers import broken_promises, unsettled, wrong_retained
from tests.support.delivery import Ledger, Receipts, Stamp
from tests.support.peers import Publisher, Subscriber
from tests.support.sim_broker import SimBroker


def _subscriber(receipts: Receipts | None = None) -> Subscriber:
    return Subscriber("s", [("t", 2)], protocol=5, chance=random.Random(1), receipts=receipts)


def _acknowledged(ledger: Ledger, topic: str = "t") -> Stamp:
    stamp = ledger.send("p", topic, qos=2, at_us=1)
    ledger.acknowledge(topic, stamp, at_us=2)
    return stamp


def test_what_peers_and_receipts_complain_of() -> None:
    ledger = Ledger()
    publisher = Publisher("p", protocol=4, ledger=ledger, clock=lambda: 1)
    subscriber = _subscriber()
    assert broken_promises(ledger, [publisher], [subscriber]) == []
    publisher.blame("one")
    subscriber.blame("two")
    for _ in range(9):
        _acknowledged(ledger)
    found = broken_promises(ledger, [publisher], [subscriber])
    assert found[:2] == ["p: one", "s: two"]
    assert "lost" in found[2]
    assert found[-1] == "s: 9 breaches in all"


def test_a_group_is_judged_as_a_whole_and_promises_no_order() -> None:
    ledger = Ledger()
    group = Receipts("g", {"t": 2})
    members = [_subscriber(group), _subscriber(group)]
    stamps = [_acknowledged(ledger) for _ in range(3)]
    for stamp in reversed(stamps):
        group.take("t", stamp.encode(), qos=2)
    assert broken_promises(ledger, [], members, [group]) == []
    group.take("t", stamps[0].encode(), qos=2)
    (text,) = broken_promises(ledger, [], members, [group])
    assert "repeated" in text


def test_a_stale_retained_message() -> None:
    ledger = Ledger()
    ledger.send("p", "state/q", qos=1, at_us=1)
    old, new = _acknowledged(ledger, "state/p"), _acknowledged(ledger, "state/p")
    assert wrong_retained(ledger, {"state/p": new.encode()}) == []
    assert len(wrong_retained(ledger, {"state/p": old.encode()})) == 1
    assert len(wrong_retained(ledger, {})) == 1


def test_who_is_not_there_is_not_settled() -> None:
    sim = SimBroker()
    assert unsettled(sim, ["c"]) == ["there is no broker"]
    sim.start()
    assert unsettled(sim, ["c"]) == ["c: not connected"]
