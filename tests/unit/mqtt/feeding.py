"""Feeding a decoder: each case goes in whole and byte by byte, and must come out the same; so it
must when the budget is one packet at a time (``sliced``)."""

from __future__ import annotations

from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import Packet

CONNECT_BYTES = {
    4: bytes.fromhex("100d00044d5154540402003c000163"),
    5: bytes.fromhex("100e00044d5154540502003c00000163"),
}


def decoder(version: int, *, from_client: bool, size_max: int = 1 << 20) -> Decoder:
    """A decoder past its CONNECT, which reads what a client (or the server) sends."""
    if not from_client:
        return Decoder(server_side=False, packet_size_max=size_max, version=version)
    made = fresh()
    made.feed(CONNECT_BYTES[version])
    assert made.failure is None
    made.packet_size_max = size_max
    return made


def fresh(size_max: int = 1 << 20) -> Decoder:
    """A server's decoder that has seen nothing."""
    return Decoder(server_side=True, packet_size_max=size_max)


def feed_both(one: Decoder, other: Decoder, raw: bytes) -> list[Packet]:
    """BackfillProgress ``raw`` whole to one decoder and byte by byte to the other; compare all."""
    packets = one.feed(raw)
    single: list[Packet] = []
    for byte in raw:
        single += other.feed(bytes((byte,)))
    assert single == packets
    assert other.version == one.version
    assert other.connected == one.connected
    assert other.protocol_name_ok == one.protocol_name_ok
    assert other.protocol_level == one.protocol_level
    if one.failure is None:
        assert other.failure is None
    else:
        assert other.failure is not None
        assert other.failure.reason_code == one.failure.reason_code
        assert other.failure.message == one.failure.message
    return packets


def sliced(decoder: Decoder, raw: bytes, budget: int) -> list[Packet]:
    """What ``raw`` holds, taken in slices of a budget."""
    packets = decoder.feed(raw, 0)
    assert packets == []
    slices = 0
    while decoder.has_more:
        packets += decoder.feed(b"", budget)
        slices += 1
        assert slices <= len(raw) + 1
    return packets


def decoded(raw: bytes, version: int, *, from_client: bool) -> list[Packet]:
    """The packets in ``raw``, which must be good."""
    if raw[0] >> 4 == 1:
        one, other = fresh(), fresh()
    else:
        one = decoder(version, from_client=from_client)
        other = decoder(version, from_client=from_client)
    packets = feed_both(one, other, raw)
    assert one.failure is None
    if raw[0] >> 4 != 1:
        third = decoder(version, from_client=from_client)
        assert sliced(third, raw, 1) == packets
        assert third.failure is None
    return packets


def refused(raw: bytes, version: int = 5, *, from_client: bool = True) -> int:
    """The reason code with which ``raw``, after a good CONNECT, is refused."""
    one = decoder(version, from_client=from_client)
    other = decoder(version, from_client=from_client)
    assert feed_both(one, other, raw) == []
    assert one.failure is not None
    third = decoder(version, from_client=from_client)
    assert sliced(third, raw, 1) == []
    assert third.failure is not None
    assert third.failure.reason_code == one.failure.reason_code
    assert one.feed(b"\xc0\x00") == []  # all that follows is discarded
    return one.failure.reason_code


def refused_connect(raw: bytes) -> int:
    """The reason code with which ``raw`` is refused as the first packet."""
    one, other = fresh(), fresh()
    assert feed_both(one, other, raw) == []
    assert one.failure is not None
    assert not one.connected
    return one.failure.reason_code
