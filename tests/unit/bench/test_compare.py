"""Comparisons: who takes part, medians, ratios of neighbours, the summary."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.bench.samples import result

from perdure.bench import compare
from perdure.bench.compare import Comparison, Spread, available, markdown, record, summarise
from perdure.bench.peers import PEERS, Peer
from perdure.bench.result import Result, Totals

ROUNDS = ((900.0, 300.0), (1000.0, 500.0), (1200.0, 400.0))


def runs() -> list[Result]:
    return [
        result(name=name, done_per_s=rate, cpu=2.0 if name == "perdure" else 8.0)
        for pair in ROUNDS
        for name, rate in zip(("perdure", "peer"), pair, strict=True)
    ]


def comparison(found: list[Result] | None = None) -> Comparison:
    found = found or runs()
    return Comparison(
        name="p2p",
        started_at=found[0].started_at,
        machine=found[0].machine,
        settings=found[0].settings,
        rounds=3,
        brokers=[found[0].broker, found[1].broker],
        skipped={"nats": "not installed"},
        lines=summarise(found),
        runs=found,
    )


def test_ratios_are_taken_within_rounds() -> None:
    (line,) = [
        line for line in summarise(runs()) if (line.broker, line.measure) == ("peer", "done_per_s")
    ]
    assert line.value == Spread(400.0, 300.0, 500.0)
    assert line.ratio == Spread(3.0, 2.0, 3.0)


def test_the_first_has_no_ratio_and_latencies_are_compared_too() -> None:
    lines = {(line.broker, line.measure): line for line in summarise(runs())}
    assert lines["perdure", "done_per_s"].ratio is None
    assert lines["peer", "cpu_s_per_million"].ratio == Spread(0.25, 0.25, 0.25)
    assert lines["peer", "delivery_p99_ms"].ratio == Spread(1.0, 1.0, 1.0)


def test_what_was_not_measured_is_left_out() -> None:
    found = runs()
    for run in found:
        run.phases[0].ack = None
        run.phases[0].cpu_s_per_million = None
    measures = {line.measure for line in summarise(found)}
    assert "ack_p99_ms" not in measures
    assert "cpu_s_per_million" not in measures
    assert "done_per_s" in measures


def test_a_record_is_read_again_without_points() -> None:
    content = record(comparison())
    again = msgspec.json.decode(content, type=Comparison)
    assert again.lines == comparison().lines
    assert len(again.runs) == 6
    assert again.runs[0].phases[0].series == []
    assert again.runs[0].phases[0].done_per_s == 900.0


def test_the_summary_states_everything_that_matters() -> None:
    text = markdown(comparison())
    assert text.startswith("# p2p\n")
    assert "| measure | perdure | peer |" in text
    assert (
        "| operations/s | 1,000 (900 to 1,200) | 400 (300 to 500); 3.00x (2.00 to 3.00) |" in text
    )
    assert "nats: skipped, not installed" in text
    assert "PUBACK after fsync" in text
    assert "in every run: 0." in text


def test_the_summary_tells_faults_and_warnings() -> None:
    found = runs()
    found[1].totals = Totals(lost=5, sessions_lost=1)
    found[0].warnings = ["busy"]
    text = markdown(comparison(found))
    assert "Faults: peer: 5 lost, 1 sessions lost." in text
    assert "- perdure: busy" in text


def test_peers_that_cannot_take_part_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("perdure.bench.peers._SYSTEM_PATH", "")
    taking, skipped = available(["perdure", "mosquitto", "nats"], 5)
    assert [peer.name for peer in taking] == ["perdure"]
    assert skipped == {
        "mosquitto": "not installed",
        "nats": "does not speak MQTT 5.0 in the versions known here",
    }


def test_brokers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def one(settings: object, peer: Peer, program: str | None, tell: object) -> Result:
        order.append(f"{peer.name} {program}")
        return result(name=peer.name)

    monkeypatch.setattr(compare, "_one", one)
    told: list[str] = []
    peers = [PEERS["perdure"], PEERS["mosquitto"]]
    found = compare.compare(
        "n",
        result().settings,
        peers,
        rounds=2,
        programs={"perdure": "p"},
        progress=lambda who: told.append(who),
    )
    assert order == ["perdure p", "mosquitto None"] * 2
    assert told == ["perdure 1/2", "mosquitto 1/2", "perdure 2/2", "mosquitto 2/2"]
    assert [broker.name for broker in found.brokers] == ["perdure", "mosquitto"]
    assert len(found.runs) == 4
