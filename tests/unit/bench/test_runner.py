"""What the runner warns of and how it balances, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.bench.errors import BenchError
from perdure.bench.publisher import Publisher
from perdure.bench.runner import Run, Stopwatch, Target
from perdure.bench.settings import Settings
from perdure.bench.subscriber import Subscriber


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


def test_a_stopwatch_counts_what_happened_since(run: Run) -> None:
    run.meter.acked = 10
    watch = Stopwatch(run)
    watch.exclude(-4.0)
    run.meter.acked, run.meter.received = 30, 7
    run.meter.ack_ns.record(5_000_000)
    phase = watch.stop("x")
    assert (phase.done, phase.delivered) == (20, 7)
    assert phase.done_per_s == pytest.approx(20 / 4, rel=0.01)
    assert phase.ack is not None
    assert phase.ack.max_ms == 5.0
    assert phase.delivery is None
    assert phase.broker_cpu_s is None
    assert watch.stop("y", done=3).done == 3
    assert watch.stop("z", deliveries=True).done == 7


def test_time_in_which_nothing_happened_can_be_left_out(run: Run) -> None:
    watch = Stopwatch(run)
    watch.exclude(-100.0)
    assert watch.stop("x").seconds >= 100


def test_only_a_broker_of_our_own_restarts(run: Run) -> None:
    with pytest.raises(BenchError, match="restarted"):
        run.target.restart()


@pytest.mark.parametrize(("own", "warned"), [(0.95, True), (0.5, False)])
def test_a_busy_generator_is_told(
    run: Run, own: float, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("perdure.bench.runner.time.monotonic", lambda: now)
    monkeypatch.setattr("perdure.bench.runner.time.process_time", lambda: now * own)
    watch = Stopwatch(run)
    now = 10.0
    phase = watch.stop("flow")
    assert phase.generator_cpu_share == own
    assert any("it may be the limit" in warning for warning in run.warnings) is warned
