"""Comparisons: who takes part, medians, ratios of neighbours, the summary."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from perdure.bench import compare
from perdure.bench.compare import Comparison, Spread, available, markdown, record, summarise
from perdure.bench.contestants import Contestant
from perdure.bench.errors import BenchError
from perdure.bench.peer import Launch, Peer
from perdure.bench.result import Broker, Result, Totals
from perdure.bench.settings import Settings
from perdure.bench.target import Target
from tests.unit.bench.samples import result

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
    monkeypatch.setattr("perdure.bench.peer._SYSTEM_PATH", "")
    taking, skipped = available(["perdure", "mosquitto", "nats"], 5)
    assert [peer.name for peer in taking] == ["perdure"]
    assert skipped == {
        "mosquitto": "not installed",
        "nats": "does not speak MQTT 5.0 in the versions known here",
    }


LISTENER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client = listener.accept()[0]
    client.recv(100)
    client.sendall(b"!")
    client.close()
"""


def launch(program: str, directory: Path, port: int) -> Launch:
    return Launch([sys.executable, "-c", LISTENER, str(port)])


def peer(name: str) -> Peer:
    return Peer(
        name,
        program_name=sys.executable,
        version=["--version"],
        durability="none",
        launch=launch,
        speaks=(4,),
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """(contestant, process, whether its broker goes on) of each run that was made."""
    runs: list[tuple[str, int, bool]] = []

    def measure(settings: Settings, target: Target, *, broker: Broker, **rest: object) -> Result:
        assert target.process is not None
        runs.append((broker.name, target.process.pid, target.goes_on))
        return result(name=broker.name)

    monkeypatch.setattr(compare, "measure", measure)
    return runs


@pytest.mark.slow
def test_contestants_take_turns_on_fresh_brokers(measured: list[tuple[str, int, bool]]) -> None:
    told: list[str] = []
    settings = result().settings
    found = compare.compare(
        "n",
        [Contestant(peer("a"), settings), Contestant(peer("b"), settings)],
        rounds=2,
        progress=lambda who: told.append(who),
    )
    assert [name for name, _, _ in measured] == ["a", "b", "b", "a"]
    assert len({process for _, process, _ in measured}) == 4
    assert not any(goes_on for _, _, goes_on in measured)
    assert told == ["a 1/2", "b 1/2", "b 2/2", "a 2/2"]
    assert [broker.name for broker in found.brokers] == ["a", "b"]
    assert len(found.runs) == 4
    assert not found.kept


@pytest.mark.slow
@pytest.mark.parametrize(("failing", "times"), [("b", 1), ("b", 3), ("b", 4), ("a", 1)])
def test_a_run_of_a_peer_that_fails_is_taken_again(
    failing: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [times]

    def measure(settings: Settings, target: Target, *, broker: Broker, **rest: object) -> Result:
        if broker.name == failing and left[0]:
            left[0] -= 1
            raise BenchError("closed at its start")
        return result(name=broker.name)

    monkeypatch.setattr(compare, "measure", measure)
    contestants = [
        Contestant(peer("a"), result().settings),
        Contestant(peer("b"), result().settings),
    ]
    if failing == "a" or times > compare.AGAIN_MAX:
        with pytest.raises(BenchError, match="closed at its start"):
            compare.compare("n", contestants, rounds=1)
        return
    found = compare.compare("n", contestants, rounds=1)
    assert found.again == ["b 1/1: closed at its start"] * times
    assert "- taken again: b 1/1: closed at its start" in markdown(found)
    assert [run.broker.name for run in found.runs] == ["a", "b"]


@pytest.mark.slow
def test_brokers_that_go_on(measured: list[tuple[str, int, bool]]) -> None:
    settings = result().settings
    contestants = [Contestant(peer("a"), settings), Contestant(peer("b"), settings)]
    found = compare.compare("n", contestants, rounds=3, keep=True)
    assert [name for name, _, _ in measured] == ["a", "b", "b", "a", "a", "b"]
    assert len({process for _, process, _ in measured}) == 2
    assert all(goes_on for _, _, goes_on in measured)
    assert "on brokers that went on" in markdown(found)
    for _, process, _ in measured:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_only_what_leaves_no_trace_is_repeated_on_one_broker() -> None:
    with pytest.raises(BenchError, match="only between runs of p2p"):
        compare.compare(
            "n", [Contestant(peer("a"), Settings(scenario="idle"))], rounds=1, keep=True
        )


def test_a_phase_that_only_some_have_is_compared_among_them() -> None:
    found = runs()
    for run in found[1::2]:
        run.phases.append(result(done_per_s=7.0).phases[0])
        run.phases[-1].name = "more"
        run.phases[-1].extra = {"bytes_each": 512.0}
    lines = {(line.phase, line.measure): line for line in summarise(found) if line.phase == "more"}
    assert lines["more", "bytes_each"].value == Spread(512.0, 512.0, 512.0)
    assert {line.broker for line in lines.values()} == {"peer"}
