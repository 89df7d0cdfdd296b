"""``perdure pipeline replay`` against a broker in a thread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.main import run
from perdure.mqtt.encode import properties_from_forward
from perdure.mqtt.packets import Publish
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.cli.mini_broker import MiniBroker, MiniConnection
from tests.unit.pipeline.logs import START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from tests.unit.pipeline.test_history import HOUR, archive, grow

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def log(tmp_path: Path) -> RocksDatabase:
    """Three hours of messages, of which the log has one, and an archive all."""
    database = open_log(tmp_path / "db")
    for hour in range(3):
        grow(database, hour)
    archive(tmp_path, database)
    for generation in (1, 2):
        database.drop_generation(generation)
    return database


def told(broker: MiniBroker) -> list[tuple[str, int]]:
    """Topics and offsets of what came."""
    return [
        (
            each.topic,
            int(dict(properties_from_forward(each.forward).user_properties)["perdure-offset"]),
        )
        for each in broker.of(Publish)
    ]


def replay(path: Path, broker: MiniBroker, *others: str) -> int:
    where = ["--data", str(path / "db"), "-h", "127.0.0.1", "-p", broker.port, "-i", "replay"]
    return run(["pipeline", "replay", *where, "--to", str(path / "to"), *others])


def test_archive_and_log_come_again(
    mini_broker: MiniBroker,
    log: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    append(log, ["replay/d/1/t", "d/1/t"], at=START + 9 * HOUR)
    mini_broker.puback = 0x10
    progress = tmp_path / "progress"
    options = ["--topic", "d/+/t", "--topic", "replay/#", "--progress", str(progress), "--json"]
    assert replay(tmp_path, mini_broker, *options) == 0
    found = told(mini_broker)
    assert len(found) == 3 * 40 + 1
    assert all(topic.startswith("replay/d/") for topic, _ in found)
    assert found == sorted(found, key=lambda each: each[1])
    first = mini_broker.of(Publish)[0]
    assert (first.qos, first.retain) == (1, False)
    properties = dict(properties_from_forward(first.forward).user_properties)
    assert properties["perdure-published-at"] == "2023-11-14T22:13:20.000000Z"
    assert properties["perdure-client-id"] == "client-0"
    answer = json.loads(capsys.readouterr().out)
    assert (answer["messages"], answer["no_subscribers"]) == (121, 121)
    # It is done: only what came meanwhile is left.
    late = append(log, ["d/4/t"], at=START + 10 * HOUR)
    assert replay(tmp_path, mini_broker, *options) == 0
    assert told(mini_broker)[121:] == [("replay/d/4/t", late[0].offset)]
    assert replay(tmp_path, mini_broker, "--progress", str(progress)) == 78
    progress.write_text("{}")
    assert replay(tmp_path, mini_broker, *options) == 78


def test_a_connection_that_breaks_is_made_again(
    mini_broker: MiniBroker, log: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.cli.reconnect.PAUSE_FIRST_S", 0.01)
    answer = MiniConnection.answer
    breaks = [30, 90]

    def breaking(connection: MiniConnection, packet: object) -> None:
        if breaks and len(mini_broker.of(Publish)) >= breaks[0]:
            breaks.pop(0)
            connection.stream.close()
            return
        answer(connection, packet)  # type: ignore[arg-type]

    monkeypatch.setattr(MiniConnection, "answer", breaking)
    assert replay(tmp_path, mini_broker, "--quiet") == 0
    assert not breaks
    found = told(mini_broker)
    # Some came twice, none out of turn for whoever knows the offsets.
    assert len(set(found)) == 3 * 43
    assert mini_broker.connects == 3


def test_a_refusal_ends_it_behind_what_the_broker_has(
    mini_broker: MiniBroker,
    log: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mini_broker.puback = 0x87
    progress = tmp_path / "progress"
    assert replay(tmp_path, mini_broker, "--progress", str(progress)) == 69
    assert "refuses replay/d/0/t: not authorized" in capsys.readouterr().err.lower()
    assert not progress.exists()
    mini_broker.puback = 0
    refused = len(told(mini_broker))
    assert replay(tmp_path, mini_broker, "--progress", str(progress), "--rate", "5000") == 0
    assert len(told(mini_broker)) == refused + 3 * 43


def test_one_progress_is_of_one_replay(
    mini_broker: MiniBroker,
    log: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = tmp_path / "progress"
    link = tmp_path / "link"
    link.symlink_to(tmp_path, target_is_directory=True)
    answer = MiniConnection.answer
    codes: list[int] = []

    def meanwhile(connection: MiniConnection, packet: object) -> None:
        """Others begin while the first message of the first one is under way, and later."""
        if len(mini_broker.of(Publish)) in {1, 60} and len(codes) < 4:
            names = (progress, link / "progress")
            codes.extend([replay(tmp_path, mini_broker, "--progress", str(name)) for name in names])
        answer(connection, packet)  # type: ignore[arg-type]

    monkeypatch.setattr(MiniConnection, "answer", meanwhile)
    assert replay(tmp_path, mini_broker, "--progress", str(progress), "--quiet") == 0
    assert codes == [75] * 4
    assert "another replay goes on with" in capsys.readouterr().err
    assert len(told(mini_broker)) == 3 * 43
    assert mini_broker.connects == 1
    # It ends with the replay.
    assert replay(tmp_path, mini_broker, "--progress", str(progress)) == 0


def test_what_cannot_be_asked_for(
    mini_broker: MiniBroker, log: RocksDatabase, tmp_path: Path
) -> None:
    assert replay(tmp_path, mini_broker, "-V", "311") == 64
    assert replay(tmp_path, mini_broker, "--prefix", "a/#/") == 64
    assert replay(tmp_path, mini_broker, "--progress", str(tmp_path / "no" / "file")) == 64
    where = ["--data", str(tmp_path / "db"), "-h", "127.0.0.1", "-p", mini_broker.port]
    assert run(["pipeline", "replay", *where, "--to", str(tmp_path / "other")]) == 78
    assert not mini_broker.of(Publish)
