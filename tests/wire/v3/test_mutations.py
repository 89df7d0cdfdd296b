"""Packets with random defects: the broker answers or closes, and goes on for everybody else.

The seeds are fixed, so each run sends the same bytes. A case fails if the broker dies, logs an
unhandled exception, sends something illegal, or holds up a client that behaves.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.wire.clients import UNLIMITED, Clients
from tests.wire.harness import Broker
from tests.wire.packets import V3, V5, Packets, Will, packet, u16, varint
from tests.wire.peer import Peer

BROKER_OPTIONS = UNLIMITED

ROUNDS = 40


def samples(build: Packets) -> list[bytes]:
    """One legal packet of each kind that a client sends."""
    return [
        build.publish("m/t", b"payload", qos=0),
        build.publish("m/t", b"payload", qos=1, packet_id=1, retain=True),
        build.publish("m/t", b"", qos=2, packet_id=2),
        build.puback(1),
        build.pubrec(1),
        build.pubrel(2),
        build.pubcomp(1),
        build.subscribe(("m/#", 1), ("m/+", 2), ("$share/g/m/t", 0)),
        build.unsubscribe("m/#", "m/+"),
        build.pingreq(),
        build.connect("m", will=Will(topic="m/w", payload=b"w"), username="u", password=b"p"),
        build.disconnect(),
    ]


def mutate(chance: random.Random, raw: bytes) -> bytes:
    """One of the ways in which bytes go wrong."""
    data = bytearray(raw)
    way = chance.randrange(7)
    if way == 0:
        data[chance.randrange(len(data))] = chance.randrange(256)
    elif way == 1:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif way == 2:
        del data[chance.randrange(len(data)) :]
    elif way == 3:
        place = chance.randrange(len(data) + 1)
        data[place:place] = chance.randbytes(chance.randrange(1, 9))
    elif way == 4:
        data[1:2] = varint(chance.choice([0, 1, 2, 127, 128, 70_000, 268_435_455]))
    elif way == 5 and len(data) > 4:
        place = chance.randrange(2, len(data) - 1)
        data[place : place + 2] = u16(chance.choice([0, 1, 255, 65_535]))
    else:
        data = bytearray(packet(chance.randrange(256), chance.randbytes(chance.randrange(40))))
    return bytes(data)


def read_to_the_end(peer: Peer, *, strict: bool) -> None:
    """Ends our direction, so that what is incomplete stays so, and waits for the close."""
    with contextlib.suppress(OSError):  # closed already
        peer.half_close()
    if strict:
        while peer.receive() is not None:
            pass
    else:
        peer.receive_raw()
    peer.close()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("seed", range(12))
def test_mutated_packets(
    broker: Broker, clients: Clients, name: str, seed: int, version: int
) -> None:
    chance = random.Random(seed * 10 + version)
    witness = clients.join(f"{name}-witness")
    witness.subscribe((f"{name}/alive", 1))
    for _ in range(ROUNDS):
        peer = broker.peer(version)
        clean = bool(chance.randrange(2))
        stream = [peer.build.connect(name, clean=clean)]
        stream += [chance.choice(samples(peer.build)) for _ in range(chance.randrange(1, 5))]
        broken = chance.randrange(len(stream) + 3)
        for place in range(len(stream)):
            if place == broken or not chance.randrange(4):
                stream[place] = mutate(chance, stream[place])
        if chance.randrange(2):
            peer.send(*stream)
        else:
            for raw in stream:
                peer.send(raw)
        # A mutated CONNECT may name another version, in which the reader cannot read.
        read_to_the_end(peer, strict=stream[0] == peer.build.connect(name, clean=clean))
    witness.publish(f"{name}/alive", b"yes", qos=1)
    witness.receive_publish(f"{name}/alive", b"yes", qos=1)


@pytest.mark.parametrize("seed", range(6))
def test_noise(clients: Clients, name: str, seed: int) -> None:
    """Random bytes instead of a CONNECT, and behind one."""
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        peer = clients.peer()
        if chance.randrange(2):
            peer.send(V3.connect(name) if chance.randrange(2) else V5.connect(name))
        peer.send(chance.randbytes(chance.randrange(1, 300)))
        read_to_the_end(peer, strict=False)
    clients.join(f"{name}-witness").expect_nothing()
