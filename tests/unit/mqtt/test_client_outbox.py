"""The sending side of a client: window, aliases, acknowledgements."""

from __future__ import annotations

import pytest

from perdure.mqtt import packets as p
from perdure.mqtt.client_events import Published
from perdure.mqtt.client_outbox import Outbox
from perdure.mqtt.decode import Decoder
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import Ack, Packet, Properties, Publish


def _sent(outbox: Outbox, version: int = 5) -> list[Packet]:
    decoder = Decoder(server_side=True, packet_size_max=1 << 20, version=version)
    decoder.connected = True
    return decoder.feed(outbox.take())


def _opened(server: Properties = p.EMPTY, *, aliases: bool = False, version: int = 5) -> Outbox:
    outbox = Outbox(version, 10, topic_aliases=aliases)
    assert outbox.open(server, session_present=False) == []
    return outbox


def test_what_is_taken_or_cleared_is_gone() -> None:
    outbox = _opened()
    outbox.send(p.Pingreq())
    assert _sent(outbox) == [p.Pingreq()]
    outbox.send(p.Pingreq())
    outbox.clear()
    assert outbox.take() == b""


def test_messages_go_out_once_there_is_a_connection() -> None:
    outbox = _opened()
    outbox.window.offer(Publish("t", b"1", 1))
    assert outbox.pump(is_connected=False) == []
    assert outbox.take() == b""
    assert outbox.pump(is_connected=True) == []
    assert _sent(outbox) == [Publish("t", b"1", 1, packet_id=1)]


def test_what_the_server_does_not_take_is_reported_and_the_rest_goes_out() -> None:
    outbox = _opened(Properties(maximum_qos=1))
    refused = outbox.window.offer(Publish("t", b"1", 2))
    outbox.window.offer(Publish("t", b"2", 1))
    (event,) = outbox.pump(is_connected=True)
    assert (event.handle, event.reason) == (refused, 0x9B)
    assert [packet.payload for packet in _sent(outbox) if isinstance(packet, Publish)] == [b"2"]


@pytest.mark.parametrize(("limit", "alias"), [(None, 1), (1000, 1), (12, 0)])
def test_an_alias_is_left_out_near_the_limit_of_the_server(limit: int | None, alias: int) -> None:
    outbox = _opened(Properties(topic_alias_maximum=5, maximum_packet_size=limit), aliases=True)
    publish = Publish("t/a", b"pay")
    outbox.send_publish(publish)
    (sent,) = _sent(outbox)
    assert isinstance(sent, Publish)
    assert (sent.topic, sent.topic_alias) == ("t/a", alias)
    assert (publish.topic, publish.topic_alias) == ("t/a", 0)
    outbox.send_publish(publish)
    (again,) = _sent(outbox)
    assert isinstance(again, Publish)
    assert again.topic == ("" if alias else "t/a")


def test_qos_2_settles_with_pubcomp() -> None:
    outbox = _opened()
    handle = outbox.window.offer(Publish("t", b"", 2))
    outbox.pump(is_connected=True)
    outbox.take()
    with pytest.raises(ProtocolViolation, match="before PUBREC"):
        outbox.on_ack(Ack(p.PUBCOMP, 1))
    with pytest.raises(ProtocolViolation, match="other QoS"):
        outbox.on_ack(Ack(p.PUBACK, 1))
    assert outbox.on_ack(Ack(p.PUBREC, 1)) is None
    assert _sent(outbox) == [Ack(p.PUBREL, 1)]
    assert outbox.on_ack(Ack(p.PUBCOMP, 1)) == Published(handle, 0, p.EMPTY)


@pytest.mark.parametrize("version", [4, 5])
def test_a_pubrec_for_nothing_is_answered(version: int) -> None:
    outbox = _opened(version=version)
    assert outbox.on_ack(Ack(p.PUBACK, 9)) is None
    assert outbox.take() == b""
    assert outbox.on_ack(Ack(p.PUBREC, 9)) is None
    assert _sent(outbox, version) == [Ack(p.PUBREL, 9, 0x92 if version == 5 else 0)]
