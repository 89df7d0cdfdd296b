"""What a node finds when it comes: the state of a single broker, and records of another release."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.storage.kafka import KafkaSettings
from perdure.storage.kafka.topic import ensure
from tests import servers
from tests.support.bounds import HANG_S
from tests.wire.harness import Options
from tests.wire.packets import Kind
from tests.wire.process_broker import ProcessBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def node(directory: Path, name: str, cluster: str) -> ProcessBroker:
    """A node that is not started yet."""
    directory.mkdir(exist_ok=True)
    settings = {
        "node.name": name,
        "cluster.name": cluster,
        "cluster.kafka": servers.kafka().servers,
    }
    return ProcessBroker(directory, Options(settings=settings))


def test_a_single_broker_becomes_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its clients find their sessions and backlogs at each node, and all nodes hold the same."""
    (tmp_path / "n1").mkdir()
    single = ProcessBroker(tmp_path / "n1", Options())
    single.start()
    sleepers = [single.connect(f"sleeper{number}", expiry=600) for number in range(2)]
    for peer in sleepers:
        peer.subscribe(("t/#", 2))
        peer.disconnect()
    publisher = single.connect("publisher")
    for number in range(20):
        publisher.publish(f"t/{number % 3}", b"%02d" % number, qos=1 + number % 2)
    publisher.publish("kept", b"retained", qos=1, retain=True)
    publisher.disconnect()
    single.close_peers()
    assert single.stop() == 0
    data = tmp_path / "n1" / "data"
    assert run(["cluster", "init", "--data", str(data), "--json"]) == ExitCode.OK
    # What joins gets the same state; over HTTP that is `cluster join`.
    (tmp_path / "n2").mkdir()
    shutil.copytree(data, tmp_path / "n2" / "data")
    name = servers.kafka_topic()
    nodes = [node(tmp_path / each, each, name) for each in ("n1", "n2")]
    try:
        for each in nodes:
            each.start()
        for number, each in enumerate(reversed(nodes)):
            back = each.connect(f"sleeper{number}", clean=False, expiry=600, session_present=True)
            for at in range(20):
                back.receive_publish(f"t/{at % 3}", b"%02d" % at, qos=1 + at % 2, dup=False)
            reader = each.connect(f"reader{number}")
            reader.subscribe(("kept", 1))
            reader.receive_publish("kept", b"retained", qos=1, retain=True)
    finally:
        for each in nodes:
            each.close_peers()
            each.close()
    place = ["--kafka", servers.kafka().servers, "--name", name]
    capsys.readouterr()
    found = run(["cluster", "verify", *place, *(str(each.directory / "data") for each in nodes)])
    assert found == ExitCode.OK, capsys.readouterr().out


def test_a_record_of_a_later_release_ends_a_node_with_a_word(tmp_path: Path) -> None:
    """Whether it runs or starts: what it does not understand it does not pass over."""
    name = servers.kafka_topic()
    old = node(tmp_path / "n1", "n1", name)
    old.start()
    producer = Producer({"bootstrap.servers": servers.kafka().servers})
    producer.produce(f"perdure.{name}.log", b"\x02a record of tomorrow")
    assert producer.flush(HANG_S) == 0
    assert old.wait() == ExitCode.DATA
    assert "has version 2; this release reads 1" in old.log_tail()
    assert "upgrade this node" in old.log_tail()
    old.spawn()

    assert old.wait() == ExitCode.DATA


def test_nodes_that_begin_with_different_states_are_refused(tmp_path: Path) -> None:
    """They would differ for good, and nobody would see it."""
    name = servers.kafka_topic()
    (tmp_path / "n1").mkdir()
    single = ProcessBroker(tmp_path / "n1", Options())
    single.start()
    single.connect("publisher").publish("kept", b"retained", qos=1, retain=True)
    single.close_peers()
    assert single.stop() == 0
    first = node(tmp_path / "n1", "n1", name)
    first.start()
    (tmp_path / "n2").mkdir()
    empty = node(tmp_path / "n2", "n2", name)
    empty.spawn()
    assert empty.wait() == ExitCode.UNAVAILABLE
    assert "began with the state of another directory" in empty.log_tail()
    assert "perdure cluster join" in empty.log_tail()
    first.close()
    # A cluster that has begun empty takes no directory that has something.
    name = servers.kafka_topic()
    (tmp_path / "n3").mkdir()
    begun = node(tmp_path / "n3", "n3", name)
    begun.start()
    (tmp_path / "n4").mkdir()
    full = ProcessBroker(tmp_path / "n4", Options())
    full.start()
    full.connect("publisher").publish("kept", b"retained", qos=1, retain=True)
    full.close_peers()
    assert full.stop() == 0
    late = node(tmp_path / "n4", "n4", name)
    late.spawn()
    assert late.wait() == ExitCode.UNAVAILABLE
    assert "the cluster began without it" in late.log_tail()
    begun.close()


def test_a_cluster_begins_anew_where_its_log_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the state of one of its nodes, in another log."""
    (tmp_path / "n1").mkdir()
    first = servers.kafka_topic()
    old = node(tmp_path / "n1", "n1", first)
    old.start()
    sleeper = old.connect("sleeper", expiry=600)
    sleeper.subscribe(("t", 2))
    sleeper.disconnect()
    held = old.connect("held", expiry=600)
    held.subscribe(("t", 1))
    old.connect("publisher").publish("t", b"kept", qos=2)
    held.receive_publish("t", b"kept", qos=1)
    old.close_peers()
    assert old.stop() == 0
    data = tmp_path / "n1" / "data"
    name = servers.kafka_topic()
    admin = AdminClient({"bootstrap.servers": servers.kafka().servers})
    (deleted,) = admin.delete_topics([f"perdure.{first}.log"]).values()
    deleted.result(HANG_S)
    lost = node(tmp_path / "n1", "n1", first)
    lost.spawn()
    assert lost.wait() == ExitCode.UNAVAILABLE, "it has read more than there is"
    assert run(["cluster", "init", "--data", str(data)]) == ExitCode.USAGE
    assert "--anew" in capsys.readouterr().err
    assert run(["cluster", "init", "--data", str(data), "--anew"]) == ExitCode.OK
    (tmp_path / "n2").mkdir()
    shutil.copytree(data, tmp_path / "n2" / "data")
    nodes = [node(tmp_path / each, each, name) for each in ("n1", "n2")]
    try:
        for each in nodes:
            each.start()
        back = nodes[1].connect("sleeper", clean=False, expiry=600, session_present=True)
        back.receive_publish("t", b"kept", qos=2)
        nodes[0].connect("publisher").publish("t", b"new", qos=1)
        back.receive_publish("t", b"new", qos=1)
        nodes[1].connect("held", clean=False, expiry=600, session_present=True)
    finally:
        for each in nodes:
            each.close_peers()
            each.close()
    place = ["--kafka", servers.kafka().servers, "--name", name]
    found = run(["cluster", "verify", *place, *(str(each.directory / "data") for each in nodes)])
    assert found == ExitCode.OK, capsys.readouterr().out


def test_verify_changes_nothing_in_what_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single broker's directory, and a node's with another cluster's name, are refused."""
    (tmp_path / "single").mkdir()
    single = ProcessBroker(tmp_path / "single", Options())
    single.start()
    single.connect("publisher").publish("kept", b"retained", qos=1, retain=True)
    single.close_peers()
    assert single.stop() == 0
    name = servers.kafka_topic()
    first = node(tmp_path / "n1", "n1", name)
    behind = node(tmp_path / "n2", "n2", name)
    for each in (first, behind):
        each.start()
    assert behind.stop() == 0
    first.connect("publisher").publish("kept", b"of the cluster", qos=1, retain=True)
    first.close_peers()
    assert first.stop() == 0
    stopped = tmp_path / "single" / "data"
    node_data = [tmp_path / each / "data" for each in ("n1", "n2")]
    before = contents(stopped, *node_data)
    kafka = ["--kafka", servers.kafka().servers]
    verify = ["cluster", "verify", *kafka, "--name"]

    assert run([*verify, name, str(stopped)]) == ExitCode.UNAVAILABLE
    assert "has never been a node" in capsys.readouterr().err
    absent = servers.kafka_topic()
    assert run([*verify, absent, str(node_data[0])]) == ExitCode.CONFIG
    assert f"has no topic perdure.{absent}.log" in capsys.readouterr().err
    topics = AdminClient({"bootstrap.servers": servers.kafka().servers}).list_topics(timeout=HANG_S)
    assert f"perdure.{absent}.log" not in topics.topics
    shorter = servers.kafka_topic()
    ensure(KafkaSettings(servers.kafka().servers, f"perdure.{shorter}.log"))
    assert run([*verify, shorter, str(node_data[0])]) == ExitCode.UNAVAILABLE
    assert "has read its log up to" in capsys.readouterr().err
    assert run([*verify, name, *map(str, node_data)]) == ExitCode.OK

    assert contents(stopped, *node_data) == before


def contents(*directories: Path) -> dict[Path, bytes]:
    """Every file that is there."""
    files = (file for directory in directories for file in directory.rglob("*"))
    return {file: file.read_bytes() for file in files if file.is_file()}


def test_a_node_does_not_go_on_in_the_log_of_another_cluster(tmp_path: Path) -> None:
    """Its position means nothing there: it would pass over what lies before, and tell nobody."""
    names = [servers.kafka_topic(), servers.kafka_topic()]
    wanderer = node(tmp_path / "n1", "n1", names[0])
    wanderer.start()
    assert wanderer.stop() == 0
    other = node(tmp_path / "n2", "n2", names[1])
    other.start()
    try:
        publisher = other.connect("publisher")
        for number in range(50):
            publisher.publish("kept", b"%d" % number, qos=1, retain=True)
        astray = node(tmp_path / "n1", "n1", names[1])
        astray.spawn()
        assert astray.wait() == ExitCode.CONFIG
        assert f"this node has read topic perdure.{names[0]}.log" in astray.log_tail()
        assert "cluster.name" in astray.log_tail()
    finally:
        other.close_peers()
        other.close()
    back = node(tmp_path / "n1", "n1", names[0])
    back.start()
    back.close()


def test_a_node_restored_from_a_backup_goes_on_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What its backup lacks is in the log, so its sessions are those of all other nodes."""
    name = servers.kafka_topic()
    place, data = tmp_path / "kept", [tmp_path / each / "data" for each in ("n1", "n2")]
    first = node(tmp_path / "n1", "n1", name)
    first.start()
    sleeper = first.connect("sleeper", expiry=600)
    sleeper.subscribe(("t", 2))
    sleeper.send(sleeper.build.publish("u", b"half", qos=2, packet_id=9))
    sleeper.expect_ack(Kind.PUBREC, 9)
    sleeper.disconnect()
    assert run(["backup", "--to", str(place), "--data", str(data[0])]) == ExitCode.OK
    publisher = first.connect("publisher")
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=2)
    assert run(["restore", "--from", str(place), "--data", str(data[1])]) == ExitCode.OK
    assert "goes on in the log" in capsys.readouterr().out
    second = node(tmp_path / "n2", "n2", name)
    second.start()
    try:
        back = second.connect("sleeper", clean=False, expiry=600, session_present=True)
        for number in range(5):
            back.receive_publish("t", b"%d" % number, qos=2, dup=False)
        back.send(back.build.publish("u", b"half", qos=2, packet_id=9, dup=True))
        back.expect_ack(Kind.PUBREC, 9)
    finally:
        for each in (first, second):
            each.close_peers()
            each.close()
    verify = ["cluster", "verify", "--kafka", servers.kafka().servers, "--name", name]
    assert run([*verify, *map(str, data)]) == ExitCode.OK, capsys.readouterr().out


def test_a_restored_directory_is_not_the_one_that_was_backed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its sessions begin anew: a cluster begins with the one or the other, on all nodes alike."""
    place, name = tmp_path / "kept", servers.kafka_topic()
    (tmp_path / "n1").mkdir()
    single = ProcessBroker(tmp_path / "n1", Options())
    single.start()
    sleeper = single.connect("sleeper", expiry=600)
    sleeper.subscribe(("t", 2))
    sleeper.disconnect()
    single.connect("publisher").publish("t", b"kept", qos=2)
    single.close_peers()
    assert single.stop() == 0
    init = ["cluster", "init", "--data", str(tmp_path / "n1" / "data"), "--to", str(place)]
    assert run(init) == ExitCode.OK
    first = node(tmp_path / "n1", "n1", name)
    first.start()
    for to in ("n2", "n3", "n4"):
        restore = ["restore", "--from", str(place), "--data", str(tmp_path / to / "data")]
        assert run(restore) == ExitCode.OK
    other = node(tmp_path / "n2", "n2", name)
    other.spawn()
    assert other.wait() == ExitCode.UNAVAILABLE
    assert "began with the state of another directory" in other.log_tail()
    first.close()

    name = servers.kafka_topic()
    nodes = [node(tmp_path / each, each, name) for each in ("n3", "n4")]
    try:
        for each in nodes:
            each.start()
        back = nodes[1].connect("sleeper", clean=False, expiry=600, session_present=False)
        back.receive_publish("t", b"kept", qos=2, dup=True)
    finally:
        for each in nodes:
            each.close_peers()
            each.close()
    verify = ["cluster", "verify", "--kafka", servers.kafka().servers, "--name", name]
    found = run([*verify, *(str(each.directory / "data") for each in nodes)])
    assert found == ExitCode.OK, capsys.readouterr().out


def test_a_nodes_directory_that_a_single_broker_had_is_no_nodes_any_more(tmp_path: Path) -> None:
    """What that wrote is in no log. If a backup was restored there, clients begin anew."""
    name, place = servers.kafka_topic(), tmp_path / "kept"
    first = node(tmp_path / "n1", "n1", name)
    first.start()
    sleeper = first.connect("sleeper", expiry=600)
    sleeper.subscribe(("t", 1))
    sleeper.disconnect()
    first.close_peers()
    assert first.stop() == 0
    assert run(["backup", "--to", str(place), "--data", str(first.directory / "data")]) == 0
    (tmp_path / "old").mkdir()
    assert run(["restore", "--from", str(place), "--data", str(tmp_path / "old" / "data")]) == 0
    for directory, present in ((tmp_path / "n1", True), (tmp_path / "old", False)):
        alone = ProcessBroker(directory, Options())
        alone.start()
        alone.connect("sleeper", clean=False, expiry=600, session_present=present)
        alone.close_peers()
        assert alone.stop() == 0
        assert "cluster.left" in alone.log_tail()
        again = node(directory, "n1", name)
        again.spawn()
        assert again.wait() == ExitCode.UNAVAILABLE
        assert "has state of its own" in again.log_tail()
