"""Reports say everything that the figures depend on."""

from __future__ import annotations

import math

import pytest

from perdure.bench import report
from perdure.bench.expectations import Verdict
from perdure.bench.result import Totals
from perdure.bench.settings import Settings
from tests.unit.bench.samples import result


def test_the_header_names_the_run() -> None:
    assert report.header(result()) == (
        "perdure 1.2.3 (PUBACK after fsync); p2p: 10 pairs, MQTT 3.1.1 QoS 1, durable sessions, "
        "64 B, closed loop, window 16; seed 1"
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (Settings(scenario="conn", subscribers=9, durable=False), "9 clients, MQTT 3.1.1 QoS 1, c"),
        (Settings(scenario="fanin", publishers=3, version=5), "3 publishers, 1 subscribers, MQ"),
        (Settings(scenario="offline", subscribers=2000, messages=7), "2,000 sessions x 7 messages"),
        (Settings(scenario="replay", subscribers=5, messages=7), "5 devices x 4 metrics x 7"),
        (Settings(scenario="p2p", rate=2500.0), "open loop, 2500/s"),
        (
            Settings(scenario="p2p", offline=100_000, recorded=5),
            "beside 100,000 offline sessions and 5 recorded",
        ),
    ],
)  # fmt: skip
def test_the_header_of_other_loads(settings: Settings, told: str) -> None:
    run = result()
    run.settings = settings
    assert told in report.header(run)


def test_rows_have_the_fields_of_their_tables() -> None:
    (phase,) = report.phase_rows(result())
    assert tuple(phase) == report.PHASE_FIELDS
    assert phase["done_per_s"] == "1,000"
    assert phase["cpu_s_per_million"] == "3.00"
    assert phase["broker_cpu"] == "15%"
    assert phase["memory_peak"] == "60.0 MiB"
    ack, delivery = report.latency_rows(result())
    assert tuple(ack) == report.LATENCY_FIELDS
    assert (ack["latency"], delivery["latency"]) == ("acknowledged", "delivered")
    assert delivery["max"] == "60.0 ms"


def test_what_was_not_measured_is_empty() -> None:
    run = result(cpu=None)
    phase = run.phases[0]
    phase.broker_cpu_share = phase.memory_peak_bytes = phase.ack = phase.delivery = None
    (row,) = report.phase_rows(run)
    assert (row["cpu_s_per_million"], row["broker_cpu"], row["memory_peak"]) == ("", "", "")
    assert report.latency_rows(run) == []


def test_the_balance_shows_faults_always_and_the_rest_if_there_is_any() -> None:
    run = result(lost=3)
    assert report.balance(run).endswith("lost 3, repeated 0, out of order 0")
    run.totals = Totals(refused=1, unacknowledged=2, foreign=3, sessions_lost=4)
    assert report.balance(run).endswith("refused 1, unacknowledged 2, foreign 3, sessions lost 4")


def test_warnings_that_differ_in_a_percentage_are_one() -> None:
    busy = "flow: other processes used {} of a core, the generator {}"
    assert report.folded([]) == []
    assert report.folded(["slow", busy.format("7%", "90%")]) == ["slow", busy.format("7%", "90%")]
    assert report.folded([busy.format(f"{share}%", "90%") for share in (80, 130, 9.5)]) == [
        busy.format("9.5% to 130%", "90%") + " (3 runs)"
    ]


def test_notes_tell_extras_warnings_and_verdicts() -> None:
    run = result()
    run.phases[0].extra = {"bytes_each": 2048.0, "restart_s": 1.234}
    run.phases[0].late_p99_ms = 0.5
    run.warnings = ["slow"]
    verdicts = [Verdict("lost=0", 0.0, True), Verdict("x>1", math.nan, False)]
    assert report.notes(run, verdicts) == [
        "flow: 2.0 KiB for each",
        "flow: listened again after 1.23 s",
        "flow: the generator itself was late by 500 µs (p99)",
        "warning: slow",
        "expected lost=0: met (0)",
        "expected x>1: MISSED (no such value)",
    ]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.0123, "12 µs"), (1.0, "1.0 ms"), (99.94, "99.9 ms"), (250.0, "250 ms"), (1500.0, "1.50 s")],
)
def test_durations(ms: float, text: str) -> None:
    assert report.duration(ms) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, ""), (12, "12 B"), (2048, "2.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes(count: int | None, text: str) -> None:
    assert report.size(count) == text
