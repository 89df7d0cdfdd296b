"""What the runner warns of and how it balances, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.bench.errors import BenchError
from perdure.bench.publisher import Publisher
from perdure.bench.runner import Run
from perdure.bench.settings import Settings
from perdure.bench.subscriber import Subscriber
from perdure.bench.target import Target


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run(Settings(scenario="p2p", seed=9), Target("127.0.0.1", 1))
    yield run
    run.close()


def test_what_was_acknowledged_and_did_not_come_is_lost(run: Run) -> None:
    stream = run.stream("t")
    publisher = run.publisher("p", [stream]).client
    subscriber = run.subscriber("s", "t", streams=[stream]).client
    assert isinstance(publisher, Publisher)
    assert isinstance(subscriber, Subscriber)
    publisher.publish(0, 5)
    assert run.missing() == 5
    assert run.totals().lost == 0
    assert run.totals().unacknowledged == 5
    publisher.inflight.clear()
    assert run.totals().lost == 5
    for counter in (0, 1, 4, 3, 3):
        subscriber.ledger.note(stream.number, counter)
    totals = run.totals()
    assert (totals.lost, totals.repeated, totals.out_of_order) == (1, 1, 1)
    run.meter.refused = 1
    assert run.totals().lost == 0


def test_what_nobody_acknowledged_is_excused_for_every_reader(run: Run) -> None:
    stream = run.stream("t")
    publisher = run.publisher("p", [stream]).client
    assert isinstance(publisher, Publisher)
    for number in range(3):
        run.subscriber(f"s{number}", "t", streams=[stream])
    publisher.publish(0, 2)
    assert run.missing() == 6
    assert run.totals().lost == 0


def test_clients_and_topics_carry_the_seed(run: Run) -> None:
    link = run.subscriber("s", "t", streams=[])
    assert link.client.client_id == "bench-00000009-s"
    assert run.stream("a").number != run.stream("b").number


def test_only_a_broker_of_our_own_restarts(run: Run) -> None:
    with pytest.raises(BenchError, match="restarted"):
        run.target.restart()
