"""Who is banned stays so where a single broker becomes a cluster, and one of its nodes a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from tests import servers
from tests.wire.harness import Broker, Options
from tests.wire.packets import Kind, Reason
from tests.wire.process_broker import ProcessBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def answer(broker: Broker, client_id: str) -> int:
    """Reason code of the CONNACK of a client."""
    peer = broker.peer(5)
    peer.send(peer.build.connect(client_id))
    packet = peer.expect_packet(Kind.CONNACK)
    peer.close()
    return int(packet.reason)


def test_bans_go_into_the_log_and_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = servers.kafka_topic()
    places = [tmp_path / each for each in ("n1", "n2")]
    for place in places:
        place.mkdir()
    single = ProcessBroker(places[0], Options())
    single.start()
    data = ["--data", str(places[0] / "data")]
    assert run(["bans", "add", *data, "--client-id", "villain"]) == ExitCode.OK
    single.connect("honest", expiry=600).disconnect()
    single.close_peers()
    assert single.stop() == 0
    kept = tmp_path / "kept"
    assert run(["cluster", "init", *data, "--to", str(kept)]) == ExitCode.OK
    assert "bans (1) hold on all nodes" in capsys.readouterr().err
    settings = {"cluster.name": name, "cluster.kafka": servers.kafka().servers}
    nodes = [
        ProcessBroker(place, Options(settings={"node.name": place.name, **settings}))
        for place in places
    ]
    nodes[0].start()
    backup = tmp_path / "node"
    assert run(["backup", *data, "--to", str(backup)]) == ExitCode.OK
    assert run(["restore", "--from", str(backup), "--data", str(places[1] / "data")]) == ExitCode.OK
    nodes[1].start()
    try:
        assert [answer(node, "villain") for node in nodes] == [Reason.BANNED] * 2
        assert run(["bans", "add", *data, "--client-id", "rogue"]) == ExitCode.OK
        assert answer(nodes[0], "rogue") == Reason.BANNED
    finally:
        for node in nodes:
            node.close_peers()
            node.close()
    # Each is a broker by itself again.
    for place in places:
        alone = ProcessBroker(place, Options())
        alone.start()
        assert [answer(alone, who) for who in ("villain", "rogue", "honest")] == [
            Reason.BANNED,
            Reason.BANNED,
            0,
        ]
        alone.close_peers()
        there = ["--data", str(place / "data")]
        assert run(["bans", "remove", *there, "--client-id", "villain"]) == ExitCode.OK
        assert answer(alone, "villain") == 0
        alone.close()
