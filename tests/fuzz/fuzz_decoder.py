"""Fuzz the decoder: any bytes, whole or in pieces, parse or set ``failure``, and nothing else.

Needs atheris, which is not a dependency::

    PYTHONPATH=src python tests/fuzz/fuzz_decoder.py -max_total_time=600 CORPUS_DIRECTORY

The first byte of an input chooses the side and the version, the second the size of the pieces.
What parses must come out the same when it is encoded and parsed again.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from perdure.mqtt.decode import Decoder
    from perdure.mqtt.encode import encode
    from perdure.mqtt.packets import Connect, Packet

_SIZE_MAX = 1 << 20


def _decoder(choice: int) -> Decoder:
    if choice % 3 == 0:
        return Decoder(server_side=True, packet_size_max=_SIZE_MAX)
    version = 4 if choice % 3 == 1 else 5
    if choice % 2:
        return Decoder(server_side=False, packet_size_max=_SIZE_MAX, version=version)
    made = Decoder(server_side=True, packet_size_max=_SIZE_MAX)
    made.feed(encode(Connect(version, True, 0, "c"), version))
    return made


def check(data: bytes) -> None:
    """The invariant, for one input."""
    if len(data) < 2:
        return
    choice, step, raw = data[0], data[1] + 1, data[2:]
    one, other, again = _decoder(choice), _decoder(choice), _decoder(choice)
    packets = one.feed(raw)
    pieces: list[Packet] = []
    for at in range(0, len(raw), step):
        pieces += other.feed(raw[at : at + step])
    assert pieces == packets
    assert (other.failure is None) == (one.failure is None)
    if one.failure is not None and other.failure is not None:
        assert other.failure.reason_code == one.failure.reason_code >= 0x80
    encoded = b"".join(encode(packet, one.version) for packet in packets)
    assert again.feed(encoded) == packets
    assert again.failure is None


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
