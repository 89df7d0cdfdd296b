"""``perdure bench``: each scenario, small, against a broker of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.bench.compare import Comparison
from perdure.bench.peers import PEERS
from perdure.bench.result import Result
from perdure.cli.main import run
from perdure.storage.rocksdb import RocksDatabase

SHORT = ("--duration", "0.3", "--warmup", "0.1")

SCENARIOS: dict[str, tuple[str, ...]] = {
    "conn": ("conn", "--clients", "20"),
    "p2p": ("p2p", "--pairs", "5", *SHORT),
    "p2p, QoS 2, 5.0": ("p2p", "--pairs", "5", "-q", "2", "-V", "5", *SHORT),
    "p2p, QoS 0": ("p2p", "--pairs", "5", "-q", "0", *SHORT),
    "p2p, open loop": ("p2p", "--pairs", "5", "--rate", "300", "--clean", *SHORT),
    "p2p, company": ("p2p", "--pairs", "3", "--with-offline", "20", "--with-retained", "30",
                     "--with-recorded", "40", *SHORT),
    "fanin": ("fanin", "--publishers", "5", *SHORT),
    "fanout": ("fanout", "--subscribers", "5", *SHORT),
    "offline": ("offline", "--sessions", "10", "--messages", "20", "--publishers", "3",
                "--restart"),
    "replay": ("replay", "--devices", "10", "--messages", "5", "--publishers", "3"),
    "replay, 5.0": ("replay", "--devices", "10", "--messages", "5", "-V", "5"),
    "idle": ("idle", "--connections", "10", "--restart", "--settle", "0.1"),
}  # fmt: skip


def record(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_loses_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = "lost=0,repeated=0,out_of_order=0,refused=0,sessions_lost=0,unacknowledged=0"
    code = run(["bench", *SCENARIOS[name], "--start", "perdure", "--json", "--expect", expected])
    found = record(capsys)
    assert code == 0, found["expectations"]
    assert found["broker"]["name"] == "perdure"
    assert all(phase["done"] > 0 for phase in found["phases"])
    assert all(phase["memory_bytes"] > 0 for phase in found["phases"])


@pytest.mark.slow
@pytest.mark.sampled
def test_a_broker_that_goes_on_is_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = PEERS["perdure"].prepare(tmp_path)
    started.process.start()
    try:
        where = ["-h", "127.0.0.1", "-p", str(started.port), "--pid", str(started.process.pid)]
        company = ["--with-offline", "5", "--with-retained", "7"]
        assert run(["bench", "p2p", "--pairs", "3", *SHORT, *company, *where, "--json"]) == 0
        found = record(capsys)
        assert found["broker"]["name"].startswith("127.0.0.1:")
        assert found["phases"][0]["cpu_s_per_million"] is not None
        # The same clients and topics again: nothing is there of the first run.
        assert run(["bench", "p2p", "--pairs", "3", *SHORT, *where, "--expect", "foreign=0"]) == 0
        assert "foreign=0: met" in capsys.readouterr().out
    finally:
        started.process.stop()
    assert run(["sessions", "list", "--data", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    database = RocksDatabase.open(tmp_path / "data", read_only=True)
    assert database.retained_count == 0
    database.close()


@pytest.mark.slow
@pytest.mark.sampled
def test_nodes_are_measured_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broker by two names is a cluster whose nodes agree."""
    started = PEERS["perdure"].prepare(tmp_path)
    started.process.start()
    try:
        urls = ["--url", f"127.0.0.1:{started.port}", "--url", f"mqtt://localhost:{started.port}"]
        nodes = [*urls, "--pid", str(started.process.pid), "--pairs", "4", *SHORT]
        expected = "lost=0,repeated=0,out_of_order=0,unacknowledged=0,takeover.ack_max<60s"
        command = ["bench", "cluster", *nodes, "-V", "5", "--expect", expected]
        assert run([*command, "--json"]) == 0
        found = record(capsys)
        assert [phase["name"] for phase in found["phases"]] == ["local", "across", "takeover"]
        for each in (phase["extra"] for phase in found["phases"][:2]):
            assert 0 <= each["node1_added_us"] <= each["node1_cpu_us"] > 0
        assert found["phases"][2]["ack"]["count"] == 50
        assert run(command) == 0
        shown = capsys.readouterr().out
        assert "cluster: 4 pairs, 2 nodes" in shown
        assert "across: CPU for each message: node 1" in shown
        assert "across: of that beyond what a node takes at rest: node 1" in shown
        assert run(["bench", "cluster", *urls[:2], "--pairs", "2", *SHORT, "--json"]) == 0
        assert [phase["name"] for phase in record(capsys)["phases"]] == ["local"]
    finally:
        started.process.stop()
    assert run(["sessions", "list", "--data", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("url", ["mqtts://h", "h:port", "h:1883/x", ""])
def test_a_node_is_named_by_host_and_port(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "cluster", "--url", url]) == 64
    assert "--url" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.sampled
def test_a_run_is_shown_saved_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "run.json"
    command = ["bench", "p2p", "--pairs", "2", *SHORT, "--start", "perdure"]
    page = tmp_path / "run.html"
    files = ["--save", str(saved), "--html", str(page)]
    assert run([*command, *files, "--expect", "p99<1us,lost=0"]) == 1
    shown = capsys.readouterr().out
    assert "p2p: 2 pairs, MQTT 3.1.1 QoS 1, durable sessions, 64 B" in shown
    assert "expected p99<1us: MISSED" in shown
    assert "expected lost=0: met" in shown
    result = msgspec.json.decode(saved.read_bytes(), type=Result)
    assert result.totals.sent == result.totals.received > 0
    assert len(result.phases) == 1
    assert "perdure bench p2p" in page.read_text()
    page.unlink()
    assert run(["bench", "report", str(saved), str(saved), "--html", str(page)]) == 0
    assert capsys.readouterr().out.count("p2p: 2 pairs") == 2
    assert "perdure, run 2" in page.read_text()


@pytest.mark.slow
@pytest.mark.sampled
def test_a_comparison_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.bench.peer._SYSTEM_PATH", "")
    monkeypatch.setenv("PATH", "")
    # Who takes part is not asked twice.
    command = ["bench", "compare", "--with", "nats", "--with", "perdure", "--rounds", "2"]
    command += ["--name", "x"]
    scenario = ["p2p", "--pairs", "2", *SHORT, "--expect", "lost=0"]
    assert run([*command, "--records", str(tmp_path), *scenario]) == 0
    told = capsys.readouterr()
    assert "nats is skipped: not installed" in told.err
    assert "nats: skipped, not installed" in told.out
    (record,) = tmp_path.glob("*-x.json")
    (summary,) = tmp_path.glob("*-x.md")
    assert "2 rounds, interleaved" in summary.read_text()
    assert run(["bench", "report", str(record), "--json"]) == 0
    assert run([*command, "--records", str(tmp_path), *scenario, "--expect", "p99<1us"]) == 1
    assert "expected p99<1us" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.sampled
def test_variations_of_perdure_take_turns_on_brokers_that_go_on(tmp_path: Path) -> None:
    command = ["bench", "compare", "--keep", "--rounds", "2", "--name", "x"]
    vary = ["--vary", "qos=2,offline=5", "--vary", "version=5,retained=4,recorded=4"]
    vary += vary[:2]  # twice is once
    scenario = ["p2p", "--pairs", "2", *SHORT, "--expect", "lost=0,repeated=0,foreign=0"]
    assert run([*command, *vary, "--records", str(tmp_path), *scenario, "--json"]) == 0
    (record,) = tmp_path.glob("*-x.json")
    found = msgspec.json.decode(record.read_bytes(), type=Comparison)
    assert [broker.name for broker in found.brokers] == [
        "perdure",
        "perdure qos=2,offline=5",
        "perdure version=5,retained=4,recorded=4",
    ]
    assert [run.settings.qos for run in found.runs] == [1, 2, 1, 1, 2, 1]
    assert found.kept


def test_what_cannot_vary(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "compare", "--vary", "colour=red", "p2p"]) == 64
    assert "'colour' cannot vary" in capsys.readouterr().err


@pytest.mark.parametrize(
    "scenario", [("replay",), ("p2p", "--start", "perdure"), ("p2p", "--pid", "1")]
)
def test_what_cannot_be_compared(scenario: tuple[str, ...]) -> None:
    assert run(["bench", "compare", *scenario]) == 64


def test_a_file_that_is_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    for content in ("{}", "no"):
        path.write_text(content)
        assert run(["bench", "report", str(path)]) == 65
        assert "is not a record" in capsys.readouterr().err


def test_no_broker_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "conn", "--clients", "1", "-p", "1", "-h", "127.0.0.1"]) == 69
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--expect", "speed>1"),
        ("--start", "perdure", "--pid", "1"),
        ("--program", "x"),
        ("--size", "5"),
        ("--qos", "3"),
    ],
)
def test_wrong_options(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "p2p", *options]) == 64
    assert capsys.readouterr().err


def test_only_durable_sessions_can_be_offline(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "offline", "-q", "0", "-p", "1"]) == 69
    assert "only for durable sessions" in capsys.readouterr().err
