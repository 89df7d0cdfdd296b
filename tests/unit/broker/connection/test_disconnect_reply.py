"""Last words: which code a client of each version is told, and when it is told nothing."""

from __future__ import annotations

import pytest

from perdure.broker.connection.disconnect_reply import (
    RETURN_CODE_OF,
    refuse,
    send_disconnect,
    version_of_refusal,
)
from perdure.broker.delivery.sender import Sender
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connack, Connect, Disconnect, Packet
from perdure.mqtt.reason_codes import RETURN_CODES_311
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim


class Sink:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def packets(self, version: int) -> list[Packet]:
        """What was sent, as a client reads it."""
        return Decoder(server_side=False, packet_size_max=2**20, version=version).feed(self.data)


def _sender(sim: SimBroker, version: int) -> tuple[Sender, Sink]:
    sink = Sink()
    services = sim.live.services
    sender = Sender(sink, services.pipeline, services.metrics, buffer_bytes=1 << 20)
    sender.version = version
    return sender, sink


@pytest.mark.parametrize(
    ("version", "told"),
    [(5, [Connack.kind]), (4, []), (0, [])],
)
def test_a_refusal_without_a_return_code(version: int, told: list[int]) -> None:
    """0x95 is none of the codes of 3.1.1: it is closed without an answer."""
    sim = make_sim()
    sender, sink = _sender(sim, version)
    refuse(sender, sim.live.services.metrics, 0x95, "too large")
    sender.flush()
    assert [packet.kind for packet in sink.packets(version)] == told


@pytest.mark.parametrize(("reason_code", "code"), sorted(RETURN_CODE_OF.items()))
def test_a_refusal_in_3_1_1(reason_code: int, code: int) -> None:
    sim = make_sim()
    sender, sink = _sender(sim, 4)
    refuse(sender, sim.live.services.metrics, reason_code, "why")
    sender.flush()
    assert sink.data == encode(Connack(False, code), 4)
    assert 0 < code < len(RETURN_CODES_311)
    assert sim.live.services.metrics.connack_sent[reason_code] == 1


@pytest.mark.parametrize("reason_code", [0x00, 0x8E])
def test_no_connack_for_a_word_that_it_does_not_have(reason_code: int) -> None:
    """Success is no refusal, and 0x8E (taken over) is for DISCONNECT alone."""
    sim = make_sim()
    sender, sink = _sender(sim, 5)
    before = sim.live.services.metrics.connack_sent[reason_code]
    refuse(sender, sim.live.services.metrics, reason_code, "")
    sender.flush()
    assert sink.data == b""
    assert sim.live.services.metrics.connack_sent[reason_code] == before


@pytest.mark.parametrize("reason", ["", "storage is full"])
def test_a_disconnect_has_the_reason_that_is_told(reason: str) -> None:
    sim = make_sim()
    sender, sink = _sender(sim, 5)
    send_disconnect(sender, 0x97, reason)
    sender.flush()
    (packet,) = sink.packets(5)
    assert isinstance(packet, Disconnect)
    assert packet.reason == 0x97
    assert packet.properties.reason_string == (reason or None)


@pytest.mark.spec("MQTT-3.1.2-29")
@pytest.mark.parametrize("wanted", [False, True])
def test_no_reason_for_a_client_that_wants_none(wanted: bool) -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(problem_information=wanted)
    sim.live.services.registry.live["c"].connection.disconnect(0x98, "so it is", send_will=True)
    packet = client.take(Disconnect)
    assert packet.reason == 0x98
    assert packet.properties.reason_string == ("so it is" if wanted else None)


def test_a_server_of_3_1_1_sends_no_disconnect() -> None:
    sender, sink = _sender(make_sim(), 4)
    send_disconnect(sender, 0x8B, "")
    sender.flush()
    assert sink.data == b""


@pytest.mark.spec("MQTT-3.1.2-2")
@pytest.mark.parametrize(
    ("name", "level", "answered_in"),
    [(b"MQTT", 6, 4), (b"MQTT", 3, 4), (b"MQXX", 5, 5), (b"MQXX", 4, 0)],
)
def test_the_version_of_a_refusal(name: bytes, level: int, answered_in: int) -> None:
    data = bytearray(encode(Connect(4, True, 0, "c"), 4))
    data[4:8] = name
    data[8] = level
    decoder = Decoder(server_side=True, packet_size_max=1000)
    assert decoder.feed(bytes(data)) == []
    assert decoder.failure is not None
    assert decoder.failure.reason_code == 0x84
    assert version_of_refusal(decoder, 0x84) == answered_in
