"""PUBACKs that are joined say what they say one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.mqtt.decode import Decoder
from perdure.mqtt.decode_header import UNBOUNDED
from perdure.mqtt.encode import encode
from perdure.mqtt.errors import MalformedPacket
from perdure.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    Ack,
    Connect,
    Packet,
    Pingreq,
    Publish,
)
from perdure.mqtt.puback_run import PubackRun

_ids = st.integers(1, 65_535)
_acks = st.builds(Ack, st.just(PUBACK), _ids)
_packets: st.SearchStrategy[Packet] = st.one_of(
    _acks,
    _acks,
    _acks,
    st.builds(Ack, st.just(PUBACK), _ids, st.just(0x10)),
    st.builds(Ack, st.just(PUBREC), _ids),
    st.just(Publish("t", b"p", 1, False, False, 7)),
    st.just(Pingreq()),
)


def _decoder(*, joins: bool) -> Decoder:
    decoder = Decoder(server_side=True, packet_size_max=1000, joins_pubacks=joins)
    decoder.feed(encode(Connect(V5, True, 0, "c"), V5))
    return decoder


def _apart(packets: list[Packet]) -> list[Packet]:
    """A run as the packets that it stands for."""
    found: list[Packet] = []
    for packet in packets:
        if not isinstance(packet, PubackRun):
            found.append(packet)
            continue
        assert len(packet) > 1
        raw = packet.raw
        found += [
            Ack(PUBACK, int.from_bytes(raw[at + 2 : at + 4], "big")) for at in range(0, len(raw), 4)
        ]
    return found


def _fed(decoder: Decoder, pieces: list[bytes], budget: int) -> list[Packet]:
    packets: list[Packet] = []
    for piece in pieces:
        packets += decoder.feed(piece, budget)
        while decoder.has_more:
            packets += decoder.feed(b"", budget)
    return packets


@given(
    st.lists(_packets, max_size=30),
    st.lists(st.integers(0, 200), max_size=5),
    st.sampled_from([1, 2, 3, 7, UNBOUNDED]),
    st.booleans(),
)
def test_they_are_the_same_packets(
    packets: list[Packet], cuts: list[int], budget: int, ends_badly: bool
) -> None:
    data = b"".join(encode(packet, V5) for packet in packets)
    if ends_badly:
        data += b"\x40\x02\x00\x00\x40\x02\x00\x01"
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    joined, plain = _decoder(joins=True), _decoder(joins=False)
    assert _apart(_fed(joined, pieces, budget)) == _fed(plain, pieces, budget) == packets
    assert (joined.failure is None) == (plain.failure is None) == (not ends_badly)


def test_a_row_is_one_and_is_counted() -> None:
    decoder = _decoder(joins=True)
    row = b"".join(encode(Ack(PUBACK, n), V5) for n in range(1, 11))
    (run,) = decoder.feed(row)
    assert isinstance(run, PubackRun)
    assert len(run) == 10
    assert run.raw == row == encode(run, V5)
    # A budget ends a row, too.
    (first,) = decoder.feed(row, 4)
    assert isinstance(first, PubackRun)
    assert len(first) == 4
    assert decoder.has_more


def test_one_alone_is_an_acknowledgement() -> None:
    assert _decoder(joins=True).feed(b"\x40\x02\x00\x05\xc0\x00") == [Ack(PUBACK, 5), Pingreq()]


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
def test_a_length_with_more_bytes_than_it_needs_is_the_same_packet(kind: int, joins: bool) -> None:
    """3.1.1 lets it; 5.0 does not [MQTT-1.5.5-1]."""
    first = kind << 4 | (2 if kind == PUBREL else 0)
    row = bytes((first, 0x82, 0x00, 1, 0)) + b"\x40\x02\x00\x05\x40\x02\x00\x06"
    decoder = Decoder(server_side=True, packet_size_max=1000, joins_pubacks=joins)
    decoder.feed(encode(Connect(4, True, 0, "c"), 4))
    found = _apart(decoder.feed(row))
    assert found == [Ack(kind, 256), Ack(PUBACK, 5), Ack(PUBACK, 6)]
    strict = _decoder(joins=joins)
    assert _apart(strict.feed(row)) == []
    assert isinstance(strict.failure, MalformedPacket)
