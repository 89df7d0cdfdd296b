"""What holds for any bytes that go into the decoder and into the WebSocket frame reader."""

from __future__ import annotations

from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connect, Packet
from perdure.net.frames import FrameReader

SIZE_MAX = 1 << 20


def _decoder(choice: int) -> Decoder:
    if choice % 3 == 0:
        return Decoder(server_side=True, packet_size_max=SIZE_MAX)
    version = 4 if choice % 3 == 1 else 5
    if choice % 2:
        return Decoder(server_side=False, packet_size_max=SIZE_MAX, version=version)
    made = Decoder(server_side=True, packet_size_max=SIZE_MAX)
    made.feed(encode(Connect(version, True, 0, "c"), version))
    return made


def check_decoder(data: bytes) -> None:
    """Bytes parse or set ``failure``, whole, in pieces and in slices alike.

    The first byte chooses the side and the version, the second the size of the pieces and the
    budget of the slices. What parses comes out the same when it is encoded and parsed again.
    """
    if len(data) < 2:
        return
    choice, step, raw = data[0], data[1] + 1, data[2:]
    one, other, third, again = (_decoder(choice) for _ in range(4))
    packets = one.feed(raw)
    pieces: list[Packet] = []
    for at in range(0, len(raw), step):
        pieces += other.feed(raw[at : at + step])
    assert pieces == packets
    slices = third.feed(raw, 0)
    while third.has_more:
        slices += third.feed(b"", step)
    assert slices == packets
    for decoder in (other, third):
        assert (decoder.failure is None) == (one.failure is None)
        if one.failure is not None and decoder.failure is not None:
            assert decoder.failure.reason_code == one.failure.reason_code >= 0x80
    encoded = b"".join(encode(packet, one.version) for packet in packets)
    assert again.feed(encoded) == packets
    assert again.failure is None


def check_frames(data: bytes) -> None:
    """Frames carry the same bytes, and end for the same reason, however they are cut."""
    if not data:
        return
    step = data[0] + 1
    raw = data[1:]
    one, other, third = (FrameReader(SIZE_MAX) for _ in range(3))
    carried = one.feed(raw, SIZE_MAX)
    pieces = b"".join(other.feed(raw[at : at + step], SIZE_MAX) for at in range(0, len(raw), step))
    third.keep(raw)
    slices = b""
    while third.has_more:
        slices += third.feed(b"", step)
    assert carried == pieces == slices
    assert one.end == other.end == third.end
    assert one.pongs == other.pongs == third.pongs
