"""From TBMQ's keys to a client on the wire: migrated, resumed, killed, gone on with."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("hiredis")
pytest.importorskip("pyarrow")
from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from tests.support.database_servers import RedisServer
from tests.wire.harness import Options
from tests.wire.packets import V5, Kind, Prop
from tests.wire.process_broker import ProcessBroker

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
]

ENTRIES = [  # score, packet identifier, QoS, fields
    (65_533, 65_533, 1, {}),
    (65_534, 65_534, 2, {"packetType": "PUBREL"}),
    (
        65_535,
        65_535,
        2,
        {"contentType": "text", "userProperties": {"props": [{"k": "a", "v": "b"}]}},
    ),
    (65_536, 1, 1, {"msgExpiryInterval": 1}),
    (65_537, 2, 1, {"msgExpiryInterval": 600, "subscriptionIds": [7]}),
    (65_540, 5, 1, {"retained": True}),
]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer(appendfsync="") as server:
        yield server


def _fill(server: RedisServer, client_id: str, *, last: int) -> None:
    queue = f"tbmq:{{{client_id}}}_messages"
    now_ms = int(time.time() * 1000)
    for score, packet_id, qos, more in ENTRIES:
        value = {
            "packetType": "PUBLISH",
            "payload": base64.b64encode(b"%d" % score).decode(),
            "time": now_ms,
            "clientId": client_id,
            "retained": False,
            "packetId": packet_id,
            "topicName": "t/a",
            "qos": qos,
        } | more
        server.command("ZADD", queue, score, f"{queue}_{packet_id}")
        server.command("SET", f"{queue}_{packet_id}", json.dumps(value), "EX", 604_800)
    server.command("SET", f"tbmq:{{{client_id}}}_last_packet_id", last)


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.trap(1, 3, 17)
@pytest.mark.parametrize("storage", ["directory", "redis"])
def test_a_client_of_tbmq_resumes(redis: RedisServer, tmp_path: Path, storage: str) -> None:
    for client_id in ("meter", "other {x}"):
        _fill(redis, client_id, last=9)
    (tmp_path / "subs.jsonl").write_text('{"client_id":"meter","filter":"new/#","qos":1}\n')
    target = [str(tmp_path / "broker" / "data")]
    settings = {}
    if storage == "redis":
        target = [redis.url, "--to-layout", "broker"]
        settings = {
            "storage.backend": "redis",
            "storage.redis.url": redis.url,
            "storage.redis.durability": "ignore",
        }
    command = [
        *("pipeline", "migrate", "--local", "--from", redis.url, "--prefix", "tbmq:"),
        *("--to", *target, "--subscriptions", str(tmp_path / "subs.jsonl")),
        *("--ledger", str(tmp_path / "ledger")),
    ]
    assert run(command) == ExitCode.OK
    time.sleep(1.2)  # one message expires after it was taken over
    (tmp_path / "broker").mkdir(exist_ok=True)
    broker = ProcessBroker(tmp_path / "broker", Options(settings=settings))
    broker.start()
    try:
        _first_connection(broker)
        broker.kill9()
        _second_connection(broker)
        broker.check_health()
    finally:
        broker.close_peers()
        broker.close()


def _first_connection(broker: ProcessBroker) -> None:
    """Everything in order, under TBMQ's identifiers; two are acknowledged."""
    meter = broker.connect("meter", clean=False, expiry=600, session_present=True)
    first = meter.expect_publish("t/a", b"65533", qos=1, packet_id=65_533, dup=True)
    meter.take(Kind.PUBREL, 65_534)
    second = meter.expect_publish("t/a", b"65535", qos=2, packet_id=65_535, dup=True)
    assert second.all(Prop.USER) == [("a", "b")]
    assert second.all(Prop.MESSAGE_EXPIRY) == []
    third = meter.expect_publish("t/a", b"65537", qos=1, packet_id=2, dup=True)
    assert third.all(Prop.SUBSCRIPTION_ID) == [7]
    [left] = third.all(Prop.MESSAGE_EXPIRY)
    assert isinstance(left, int)
    assert 590 <= left < 600
    meter.expect_publish("t/a", b"65540", qos=1, packet_id=5, dup=True, retain=True)
    meter.acknowledge(first)
    meter.send(V5.pubcomp(65_534))
    meter.acknowledge(second)
    # A PUBACK after the acknowledgements has them on disk.
    broker.connect("settle").publish("settle", b"", qos=1)
    meter.fence()


def _second_connection(broker: ProcessBroker) -> None:
    """After a kill: what was not acknowledged, the same identifiers; then what is new."""
    meter = broker.connect("meter", clean=False, expiry=600, session_present=True)
    meter.receive_publish("t/a", b"65537", qos=1, packet_id=2, dup=True)
    meter.receive_publish("t/a", b"65540", qos=1, packet_id=5, dup=True)
    broker.connect("publisher").publish("new/1", b"new", qos=1)
    meter.receive_publish("new/1", b"new", qos=1, packet_id=10, dup=False)
    meter.expect_nothing()
    meter.disconnect()
    other = broker.connect("other {x}", clean=False, expiry=600, session_present=True)
    other.receive_publish("t/a", b"65533", qos=1, packet_id=65_533)
