"""Three nodes as processes on a real Kafka: clients that wander, nodes that die."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from tests import servers
from tests.wire.cluster_broker import ClusterBroker
from tests.wire.harness import Options
from tests.wire.packets import Kind, Prop, Reason, Will
from tests.wire.peer import Peer

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBroker]:
    cluster = ClusterBroker(
        tmp_path_factory.mktemp("cluster"),
        Options(settings={"cluster.dead_after": "3s", "sys.interval_s": "1"}),
        advertise=True,
    )
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(nodes: ClusterBroker) -> Iterator[ClusterBroker]:
    nodes.ensure_running()
    yield nodes
    nodes.close_peers()
    for node in nodes.nodes:
        node.close_peers()
    nodes.check_health()


def resume(cluster: ClusterBroker, number: int, client_id: str) -> Peer:
    """Come back to a node, to a session that is there."""
    node = cluster.nodes[number]
    return node.connect(client_id, clean=False, expiry=600, session_present=True)


def test_a_session_wanders_with_all_that_it_has(cluster: ClusterBroker) -> None:
    first, second, third = cluster.nodes
    peer = first.connect("wanderer", expiry=600)
    peer.subscribe(("w/#", 2))
    publisher = second.connect("publisher")
    for qos in (0, 1, 2):
        publisher.publish("w/t", b"%d" % qos, qos=qos)
        peer.receive_publish("w/t", b"%d" % qos, qos=qos)
    moved = resume(cluster, 2, "wanderer")
    peer.expect_refusal(Reason.TAKEN_OVER)
    publisher.publish("w/t", b"after", qos=2)
    # Nothing of what was acknowledged comes again.
    moved.receive_publish("w/t", b"after", qos=2, dup=False)
    moved.unsubscribe("w/#")
    back = resume(cluster, 0, "wanderer")
    publisher.publish("w/t", b"unwanted", qos=1)
    back.subscribe(("other", 1))
    publisher.publish("other", b"wanted", qos=1)
    back.receive_publish("other", b"wanted", qos=1)
    assert third.connect("wanderer", session_present=False).drain() == []


def test_retained_is_what_was_acknowledged_last_anywhere(cluster: ClusterBroker) -> None:
    for number in range(12):
        cluster.nodes[number % 3].connect("setter").publish(
            "r/t", b"%d" % number, qos=1, retain=True
        )
        reader = cluster.nodes[(number + 1) % 3].connect("reader")
        reader.subscribe(("r/#", 1))
        reader.receive_publish("r/t", b"%d" % number, qos=1, retain=True)


def test_qos2_goes_on_at_another_node_once(cluster: ClusterBroker) -> None:
    watcher = cluster.nodes[2].connect("watcher")
    watcher.subscribe(("q/#", 2))
    publisher = cluster.nodes[0].connect("exact", expiry=600)
    packet = publisher.build.publish("q/t", b"once", qos=2, packet_id=7)
    publisher.send(packet)
    publisher.expect_ack(Kind.PUBREC, 7)
    publisher.close()
    again = resume(cluster, 1, "exact")
    again.send(again.build.publish("q/t", b"once", qos=2, packet_id=7, dup=True))
    again.expect_ack(Kind.PUBREC, 7)
    again.send(again.build.pubrel(7))
    again.expect_ack(Kind.PUBCOMP, 7)
    again.publish("q/t", b"next", qos=2)
    watcher.receive_publish("q/t", b"once", qos=2)
    watcher.receive_publish("q/t", b"next", qos=2)


def test_a_dead_node_loses_nothing_and_its_wills_come_once(cluster: ClusterBroker) -> None:
    first, second, third = cluster.nodes
    watcher = first.connect("mourner")
    watcher.subscribe(("will/#", 1))
    kept = third.connect("kept", expiry=600, will=Will(topic="will/kept", payload=b"early"))
    kept.subscribe(("d/#", 1))
    third.connect("lost", will=Will(topic="will/lost", payload=b"gone"))
    publisher = second.connect("speaker")
    publisher.publish("d/t", b"before", qos=1)
    kept.receive_publish("d/t", b"before", qos=1)
    third.kill9(start=False)
    third.close_peers()
    publisher.publish("d/t", b"meanwhile", qos=1)
    # The session is served at once; its old connection has ended, so its will is due.
    again = resume(cluster, 1, "kept")
    found = again.take_publish()
    if found.payload == b"before":  # its cursor died with the node
        assert found.dup
        found = again.take_publish()
    assert found.payload == b"meanwhile"
    watcher.receive_publish("will/kept", b"early", qos=0)
    wills = [watcher.take_publish()]
    assert [(will.topic, will.payload) for will in wills] == [("will/lost", b"gone")]
    third.start()
    third.connect("lost", session_present=False)
    publisher.publish("will/end", b"", qos=1)
    watcher.receive_publish("will/end", b"", qos=1)


def shares_of(members: list[Peer], wanted: set[bytes], until_s: float) -> list[list[bytes]]:
    """What each member gets until all of that has come, acknowledged."""
    found: list[list[bytes]] = [[] for _ in members]
    clock = time.monotonic
    while not wanted <= {payload for share in found for payload in share}:
        assert clock() < until_s, f"missing {wanted - {p for share in found for p in share}}"
        for member, share in zip(members, found, strict=True):
            for packet in member.drain():
                if packet.kind is Kind.PUBLISH:
                    member.acknowledge(packet)
                    share.append(packet.payload)
    return found


def test_a_group_has_members_on_all_nodes_and_outlives_those_that_serve_it(
    cluster: ClusterBroker,
) -> None:
    """Nothing is lost, QoS 2 comes once, and each member gets its messages in order."""
    publisher = cluster.nodes[1].connect("sharer")
    members = [node.connect(f"member{at}", expiry=600) for at, node in enumerate(cluster.nodes)]
    for member in members:
        member.subscribe(("$share/crew/s/#", 2))
    before = [b"%02d" % number for number in range(30)]
    for payload in before:
        publisher.publish("s/t", payload, qos=2)
    shares = shares_of(members, set(before), time.monotonic() + 20)
    assert sorted(payload for share in shares for payload in share) == before
    assert all(share and share == sorted(share) for share in shares)
    # Both the node that serves the group and the one of another member die, in turn.
    for at in (0, 2):
        lost = [b"%d-%02d" % (at, number) for number in range(30)]
        for payload in lost[:20]:
            publisher.publish("s/t", payload, qos=2)
        cluster.nodes[at].kill9(start=False)
        members[at].close()
        cluster.nodes[at].close_peers()
        for payload in lost[20:]:
            publisher.publish("s/t", payload, qos=2)
        members[at] = resume(cluster, 1, f"member{at}")
        shares = shares_of(members, set(lost), time.monotonic() + 30)
        assert sorted(payload for share in shares for payload in share) == lost
        cluster.nodes[at].start()


def test_a_node_that_stops_sends_its_clients_to_the_others_in_turn(
    cluster: ClusterBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, _ = cluster.nodes
    moving = [first.connect(f"moving{number}", expiry=600) for number in range(4)]
    old = first.connect("old", version=4, clean=False)
    for number, peer in enumerate(moving):
        peer.subscribe((f"m/moving{number}", 1))
    assert first.stop() == 0
    told = [peer.expect_refusal(Reason.USE_ANOTHER_SERVER) for peer in moving]
    places = [dict(packet.properties)[Prop.SERVER_REFERENCE] for packet in told if packet]
    # One after the other, so that none gets all of them, and never back to where they come from.
    assert sorted(places) == ["n2.example:1883"] * 2 + ["n3.example:1883"] * 2
    assert places[0] != places[1]
    assert old.receive() is None
    # It has said that it goes: it was not waited for.
    capsys.readouterr()
    status = ["cluster", "status", "--data", str(second.directory / "data"), "--json"]
    assert run(status) == ExitCode.EXPECTATION
    shown = capsys.readouterr().out
    assert '"left"' in shown
    assert "expelled" not in shown
    second.connect("speaker").publish("m/moving0", b"x", qos=1)
    resume(cluster, 2, "moving0").receive_publish("m/moving0", b"x", qos=1)
    first.start()


def test_a_node_is_expelled_and_forgotten_by_an_operator(
    cluster: ClusterBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, third = cluster.nodes
    asked = ["--data", str(first.directory / "data"), "--json"]
    for refused in (["expel", "n9"], ["expel", "n1"], ["expel", "n3"], ["forget", "n3"]):
        assert run(["cluster", *refused, *asked]) not in (0, 2), refused
    shown = capsys.readouterr().err
    assert "no node 'n9' was heard of" in shown
    assert "n1 is the node that was asked" in shown
    assert shown.count("n3 lives: it was heard of") == 2
    assert run(["cluster", "expel", "n3", "--force", *asked]) == 0
    assert '"expelled"' in capsys.readouterr().out
    third.stop()
    assert run(["cluster", "forget", "n3", *asked]) == 0
    assert '"forgotten"' in capsys.readouterr().out
    assert run(["cluster", "status", *asked]) == 0
    assert '"n3"' not in capsys.readouterr().out
    third.start()


def test_any_node_lists_what_is_connected_to_all_of_them(
    cluster: ClusterBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in cluster.nodes:
        node.connect(f"listed-{node.options.settings['node.name']}", expiry=600).subscribe(("l", 1))
    asked = ["--data", str(cluster.nodes[0].directory / "data"), "--json"]
    capsys.readouterr()
    assert run(["sessions", "list", "--prefix", "listed-", "--state", "connected", *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["client_id"], row["node"]) for row in found] == [
        (f"listed-{name}", name) for name in ("n1", "n2", "n3")
    ]
    assert run(["subs", "list", "--prefix", "listed-", *asked]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["node"] for row in rows) == ["n1", "n2", "n3"]


def test_each_node_tells_how_far_it_has_read(cluster: ClusterBroker) -> None:
    reader = cluster.nodes[1].connect("lag")
    reader.subscribe(("$SYS/broker/cluster/+", 0))
    found: dict[str, int] = {}
    while len(found) < 4 or found["members"] < 3:
        packet = reader.take_publish()
        name = packet.topic.rsplit("/", 1)[1]
        if name in ("members", "position", "end", "lag"):
            found[name] = int(packet.payload)
    assert found["position"] > 0
    assert found["end"] > found["lag"] >= 0
    while (again := reader.take_publish()).topic != "$SYS/broker/cluster/position":
        pass
    assert int(again.payload) > found["position"]


def test_all_nodes_hold_the_same(
    cluster: ClusterBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = cluster.nodes[0].connect("last", expiry=600)
    peer.subscribe(("$share/g/v/#", 1), ("v/#", 1))
    cluster.nodes[1].connect("speaker").publish("v/t", b"x", qos=1, retain=True)
    assert run(["cluster", "status", "--data", str(cluster.nodes[2].directory / "data")]) == 0
    peer.close()
    cluster.close_peers()
    for node in cluster.nodes:
        node.close_peers()
    cluster.close()
    directories = [str(node.directory / "data") for node in cluster.nodes]
    name = cluster.nodes[0].options.settings["cluster.name"]
    place = ["--kafka", servers.kafka().servers, "--name", name]
    found = run(["cluster", "verify", *place, *directories, "--json"])
    shown = capsys.readouterr().out
    cluster.start()
    assert found == ExitCode.OK, shown
