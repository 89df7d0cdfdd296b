"""Whoever is refused has a line; who is refused again and again has few."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.broker.auth.authorize import Identity
from perdure.broker.connection.refusal_log import KEYS_MAX, RefusalLog, foreign, shortened
from perdure.config.schema import Config, LogConfig, MqttConfig
from perdure.mqtt.packets import Connack, Connect, Publish, Subscribe, SubscribeFilter
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim

V31 = b"\x10\x12\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x04abcd"


def raw(sim: SimBroker, data: bytes) -> Client:
    """A client that sends what it likes first."""
    client = Client(sim, "c", version=4)
    client.open()
    assert client.wire is not None
    client.wire.send(data)
    sim.run_for(10_000)
    assert client.is_lost
    return client


@pytest.mark.parametrize(
    ("data", "reason", "code"),
    [
        (V31, "MQTT 3.1 is not spoken here", "0x84"),
        (b"\x10\x10\x00\x04MQTT\x06\x02\x00\x3c\x00\x04abcd", "level 6", "0x84"),
        (b"\x10\x10\x00\x04mqtt\x04\x02\x00\x3c\x00\x04abcd", "name is not MQTT", "0x84"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP", "0x82"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS", "0x81"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "PROXY", "0x8"),
        (b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00", "identifier is required", "0x85"),
        (b"\xc0\x00", "PINGREQ, not CONNECT", "0x82"),
        (b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x04", "the limit is", "0x95"),
    ],
)
def test_what_is_no_connect_that_we_take(data: bytes, reason: str, code: str) -> None:
    sim = make_sim()
    raw(sim, data)
    (told,) = sim.logged("connection.refused")
    assert reason in str(told["reason"])
    assert str(told["reason_code"]).startswith(code)
    assert told["reason_name"]
    assert told["listener"]
    assert told["address"]
    assert not sim.logged("connection.closed")


def test_a_refused_connect_names_who_it_was() -> None:
    sim = make_sim(config=Config(sys=QUIET, mqtt=MqttConfig(maximum_qos=1)))
    from perdure.model import Will

    client = Client(sim, "c" * 1000)
    client.open()
    will = Will("t", b"", 2, False)
    client.send(
        Connect(5, True, 9, client.client_id, will=will, username="ann", password=b"secret")
    )
    assert client.take(Connack).reason == 0x9B
    (told,) = sim.logged("connection.refused")
    assert told["username"] == "ann"
    assert told["client_id"] == "c" * 256 + "... (1000 characters)"
    assert "will QoS 2" in str(told["reason"])
    assert told["protocol"] == 5
    assert "secret" not in str(told)


def test_a_late_connect_is_told() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.open()
    sim.run_for(60_000_000)
    assert client.is_lost
    (told,) = sim.logged("connection.refused")
    assert told["reason"] == "connect timeout"
    assert "reason_code" not in told


@pytest.mark.parametrize("version", [4, 5])
def test_refused_publish_and_subscribe(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = make_sim()
    client = Client(sim, "c", version=version)
    client.connect(clean=True)
    authorizer = sim.live.services.authorizer
    monkeypatch.setattr(type(authorizer), "publish", lambda *_: False)
    monkeypatch.setattr(type(authorizer), "subscribe", lambda *_: False)
    monkeypatch.setattr(authorizer, "allow_all", False)
    client.send(Publish("a/b", b"secret", 1, packet_id=1))
    client.send(Subscribe(2, [SubscribeFilter("x/#", 1)]))
    sim.run_for(100_000)
    (told,) = sim.logged("publish.refused")
    assert (told["topic"], told["qos"], told["client_id"]) == ("a/b", 1, "c")
    assert (told["reason_code"], told["reason_name"]) == ("0x87", "Not authorized")
    assert "secret" not in str(told)
    (told,) = sim.logged("subscribe.refused")
    assert (told["filter"], told["reason_code"]) == ("x/#", "0x87")
    refusals = sim.live.services.metrics.refusals
    assert refusals == {("publish", "0x87"): 1, ("subscribe", "0x87"): 1}


def test_a_client_that_breaks_the_protocol_has_one_line() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(clean=True)
    assert client.wire is not None
    client.wire.send(b"\x00\x00")
    sim.run_for(10_000)
    (told,) = sim.logged("connection.closed")
    assert (told["client_id"], told["reason_code"]) == ("c", "0x82")
    assert sim.live.services.metrics.refusals == {("packet", "0x82"): 1}


def test_who_is_connected_is_told() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(clean=True, keep_alive_s=7)
    (told,) = sim.logged("connection.opened")
    expected = {"client_id": "c", "protocol": 5, "clean_start": True, "keep_alive_s": 7}
    assert expected.items() <= told.items()
    assert {"username", "listener", "address"} <= told.keys()


class Peer:
    """What a line is written about."""

    def __init__(self, address: str, client_id: str = "", subject: str | None = None) -> None:
        fields = ["address", "port", "listener", "certificate_subject"]
        self.peer = msgspec.defstruct("P", fields)(address, 1, "tcp", subject)
        self.opening = self.about = None
        self.foreign = ""
        self.session: Any = None
        if client_id:
            self.session = msgspec.defstruct("S", ["client_id", "identity"])(
                client_id, Identity(client_id, "u", False)
            )


def made(sim: SimBroker, **settings: Any) -> RefusalLog:
    services = sim.live.services
    return RefusalLog(
        services.log, services.clock, services.scheduler, services.metrics, LogConfig(**settings)
    )


def test_repeats_are_counted_for_each_client() -> None:
    sim = make_sim()
    refusals = made(sim, refusals_max=2, repeat_window_s=10)
    for _ in range(1000):
        refusals.connect(Peer("10.0.0.1"), 0x86, "no")  # type: ignore[arg-type]
    refusals.connect(Peer("10.0.0.2"), 0x86, "no")  # type: ignore[arg-type]
    lines = sim.logged("connection.refused")
    assert [line["address"] for line in lines] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    sim.run_for(11_000_000)
    (summary,) = sim.logged("refusals.suppressed")
    assert (summary["suppressed"], summary["most_from"]) == (998, "10.0.0.1")
    assert summary["events"] == {"connection.refused": 998}
    refusals.connect(Peer("10.0.0.1"), 0x86, "no")  # type: ignore[arg-type]
    assert sim.logged("connection.refused")[-1]["suppressed"] == 998
    sim.run_for(30_000_000)
    assert len(sim.logged("refusals.suppressed")) == 1
    assert sim.live.services.metrics.refusals == {("connect", "0x86"): 1002}


def test_all_together_are_bounded_in_lines_and_memory() -> None:
    sim = make_sim()
    refusals = made(sim, refusals_max=2, refusals_total_max=50)
    for number in range(KEYS_MAX + 1000):
        peer = Peer(f"10.0.{number // 5}", f"client-{number}")
        refusals.subscribe(peer, 0x87, "no", "t" * 10_000)  # type: ignore[arg-type]
    lines = sim.logged("subscribe.refused")
    assert len(lines) == 50
    assert len(str(lines[0]["filter"])) < 300
    assert len(refusals._seen) <= KEYS_MAX + 1
    assert len(refusals._by_address) <= KEYS_MAX + 1
    refusals.close()
    (summary,) = sim.logged("refusals.suppressed")
    assert summary["suppressed"] == KEYS_MAX + 950


def test_each_reason_and_each_client_has_its_line() -> None:
    sim = make_sim()
    refusals = made(sim, refusals_max=1)
    for _ in range(3):
        for reason in ("a", "b"):
            refusals.connect(Peer("10.0.0.1"), 0x81, reason)  # type: ignore[arg-type]
        for client_id in ("x", "y"):
            refusals.publish(Peer("10.0.0.1", client_id), 0x87, "no", "t", 1)  # type: ignore[arg-type]
    assert [line["reason"] for line in sim.logged("connection.refused")] == ["a", "b"]
    assert [line["client_id"] for line in sim.logged("publish.refused")] == ["x", "y"]


def test_a_certificate_is_named() -> None:
    sim = make_sim()
    made(sim).connect(Peer("10.0.0.1", subject="pump-7"), 0x87, "no")  # type: ignore[arg-type]
    made(sim).connect(Peer("10.0.0.1"), 0x87, "no")  # type: ignore[arg-type]
    named = [line.get("certificate") for line in sim.logged("connection.refused")]
    assert named == ["pump-7", None]


def test_one_address_leaves_lines_for_the_others() -> None:
    sim = make_sim()
    refusals = made(sim, refusals_total_max=40)
    for number in range(100):
        refusals.connect(Peer("10.0.0.1"), 0x81, f"reason {number}")  # type: ignore[arg-type]
    assert len(sim.logged("connection.refused")) == 10
    refusals.connect(Peer("10.0.0.2"), 0x81, "other")  # type: ignore[arg-type]
    assert sim.logged("connection.refused")[-1]["reason"] == "other"


def test_what_one_client_repeats_takes_no_lines_from_others_of_its_address() -> None:
    sim = make_sim()
    refusals = made(sim, refusals_max=3, refusals_total_max=40)
    for _ in range(100):
        refusals.publish(Peer("10.0.0.1", "loud"), 0x87, "no", "t", 1)  # type: ignore[arg-type]
    refusals.publish(Peer("10.0.0.1", "calm"), 0x87, "no", "t", 1)  # type: ignore[arg-type]
    told = [line["client_id"] for line in sim.logged("publish.refused")]
    assert told == ["loud", "loud", "loud", "calm"]
    refusals.close()
    (summary,) = sim.logged("refusals.suppressed")
    assert (summary["suppressed"], summary["most_from"]) == (97, "10.0.0.1")


def test_no_limit() -> None:
    sim = make_sim()
    refusals = made(sim, refusals_max=0, refusals_total_max=0)
    for _ in range(500):
        refusals.publish(Peer("a", "c"), 0x97, "full", "t", 1)  # type: ignore[arg-type]
    assert len(sim.logged("publish.refused")) == 500


@pytest.mark.parametrize(
    ("data", "found"),
    [(b"GET /", "HTTP"), (b"\x16\x03", "TLS"), (b"SSH-2.0", "SSH"), (b"\x10", ""), (b"GE", "")],
)
def test_foreign(data: bytes, found: str) -> None:
    assert foreign(data).startswith(found)
    assert bool(foreign(data)) == bool(found)


def test_names_are_cut() -> None:
    assert shortened("x" * 256) == "x" * 256
    assert len(shortened("x" * 65_535)) < 300
