"""The overviews of several nodes as one: sums, the worst, and what nobody knows."""

from __future__ import annotations

import msgspec

from perdure.admin.records.node import ALL_NODES, Rates
from perdure.server.administration.node_totals import SUMMED, total
from tests.unit.server.administration.fake_service import overview

EARLY_US, LATE_US = 1_795_750_515_000_000, 1_795_750_525_000_000


def test_what_each_node_counts_is_summed_and_what_all_have_is_not() -> None:
    each = {name: number for number, name in enumerate(SUMMED, start=1)}
    same = {"sessions_offline": 7, "subscriptions_offline": 4, "log_bytes": 9, "shared_groups": 2}
    found = total([overview(name, **each, **same) for name in ("n1", "n2")])
    assert {name: getattr(found, name) for name in SUMMED} == {
        name: 2 * count for name, count in each.items()
    }
    assert {name: getattr(found, name) for name in same} == same
    assert found.subscriptions == 2 * each["subscriptions_connected"] + 4
    assert found.node == ALL_NODES
    assert (found.rates.messages_received, found.rates.messages_delivered) == (3.0, 4.0)
    assert (found.open_files, found.memory_bytes, found.cpu_s) == (20, 200, 2.0)


def test_of_what_has_no_sum_the_worst_is_told() -> None:
    found = total(
        [
            overview("n1", uptime_s=50, version="2", cluster_lag=3, as_of_us=LATE_US),
            overview(
                "n2",
                uptime_s=5,
                version="1",
                cluster_lag=70,
                as_of_us=EARLY_US,
                event_loop_lag_us=900,
                storage="refusing",
                storage_reason="the budget is used up",
                phase="stopping",
            ),
            overview("n3", uptime_s=9, version="2", storage="stalled", storage_reason="Kafka"),
        ],
        unheard=["n4"],
    )
    assert (found.storage, found.phase) == ("stalled", "stopping")
    assert found.storage_reason == "n2: the budget is used up; n3: Kafka"
    assert (found.version, found.uptime_s, found.as_of_us) == ("1, 2", 5, EARLY_US)
    assert (found.cluster_lag, found.event_loop_lag_us) == (70, 900)
    assert found.unheard == ["n4"]


def test_what_one_does_not_know_nobody_knows_of_all() -> None:
    young = overview("n2", rates=Rates(window_s=0), memory_bytes=None, storage="later")
    found = total([overview("n1"), young])
    assert found.rates.messages_received is None
    assert (found.memory_bytes, found.open_files) == (None, 20)
    assert found.storage == "later"  # worse than all that this release knows


def test_a_latency_is_that_of_the_slowest_node() -> None:
    rates = overview("n1").rates
    fast = msgspec.structs.replace(rates, ack_p50_us=200, ack_p99_us=900, cpu_cores=0.5)
    slow = msgspec.structs.replace(rates, ack_p50_us=300, ack_p99_us=800, cpu_cores=0.25)
    found = total([overview("n1", rates=fast), overview("n2", rates=slow), overview("n3")]).rates
    assert (found.ack_p50_us, found.ack_p99_us) == (300, 900)
    found = total([overview("n1", rates=fast), overview("n2", rates=slow)]).rates
    assert found.cpu_cores == 0.75


def test_drops_are_summed_by_their_reason() -> None:
    found = total(
        [
            overview("n1", messages_dropped_by={"expired": 1, "quota": 0}),
            overview("n2", messages_dropped_by={"expired": 2, "too_large": 3}),
        ]
    )
    assert found.messages_dropped_by == {"expired": 3, "quota": 0, "too_large": 3}
