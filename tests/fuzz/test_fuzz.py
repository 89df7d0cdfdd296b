"""A whole broker among clients that break every grammar: nobody else notices, nothing unexpected.

``make fuzz ROUNDS=5000`` runs more of them; ``SEED=n`` repeats the choices of a run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random

import pytest

from perdure.broker.auth.hashes import ScramKeys
from perdure.broker.auth.scram import NAME, scram_factory
from perdure.broker.connection.replay_request import parse_time_us
from perdure.config.schema import Config
from perdure.content import parse_filter
from perdure.errors import MqttError
from perdure.mqtt.packets import PUBACK, Ack
from perdure.net.frames import BINARY, CLOSE, CONTINUATION, PING, TEXT
from perdure.net.proxy_protocol import SIGNATURE, parse_proxy_header
from tests.fuzz.decoding import check_decoder, check_frames
from tests.fuzz.grammar import DIGITS, LEVELS, SCRAM, TEXTS, TIMES, Noise
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, QUIET, Client

SEED = int(os.environ.get("PERDURE_SEED") or 20261122)
ROUNDS = int(os.environ.get("PERDURE_FUZZ_ROUNDS") or 60)
ROUNDS_PER_WORLD = 30
"""A broker is thrown away before what clients have made in it slows the run."""


class Nobody:
    """A client that does not look at what it gets."""

    def received(self, data: bytes) -> None:
        pass

    def lost(self) -> None:
        pass


class Users:
    """One user."""

    def scram_keys(self, user: str) -> ScramKeys | None:
        return ScramKeys(4096, b"salt" * 4, bytes(32), bytes(32)) if user == "user" else None


def _sim(seed: int) -> SimBroker:
    sim = SimBroker(seed, config=Config(sys=QUIET), network_profile=NO_DELAY)
    sim.blocking_us = (1_000, 1_000)
    sim.start()
    factory = scram_factory(Users(), nonce=lambda: "nonce", decoy_key=b"k" * 32)
    sim.live.services.methods.register(NAME, factory)
    return sim


def _say(sim: SimBroker, noise: Noise, chance: random.Random) -> None:
    """One connection from its first byte to its last."""
    wire = sim.network.connect(Nobody())
    assert wire is not None
    if chance.random() < 0.1:
        wire.stop_taking()
    data = noise.mutated(noise.connect(f"fuzz{chance.randrange(4)}"))
    for _ in range(chance.randrange(12)):
        data += noise.mutated(noise.packet())
        if chance.random() < 0.4:
            wire.send(data)
            data = b""
            sim.run_for(chance.choice((0, 1_000, 20_000)))
    wire.send(data)
    sim.run_for(chance.choice((0, 2_000, 2_000_000)))
    if chance.random() < 0.5:
        wire.hang_up()
    else:
        wire.vanish()


def _is_through(honest: Client, payload: bytes, packet_id: int) -> bool:
    """Whether a message was acknowledged and has come back."""
    came = any(message.payload == payload for message in honest.messages)
    answers = (Ack(PUBACK, packet_id), Ack(PUBACK, packet_id, 0x10))
    return came and any(answer in honest.received for answer in answers)


def test_whatever_a_client_sends_the_others_go_on() -> None:
    chance = random.Random(SEED)
    print(f"\nrepeat with SEED={SEED} ROUNDS={ROUNDS}")
    done = 0
    while done < ROUNDS:
        sim = _sim(chance.getrandbits(32))
        honest = Client(sim, "honest")
        honest.connect()
        honest.subscribe("honest/topic", qos=1)
        for number in range(done, min(ROUNDS, done + ROUNDS_PER_WORLD)):
            noise = Noise(chance, chance.choice((4, 5)), is_polite=chance.random() < 0.5)
            _say(sim, noise, chance)
            payload = b"%d" % number
            packet_id = honest.publish("honest/topic", payload, packet_id=number % 60_000 + 1)
            answered = functools.partial(_is_through, honest, payload, packet_id)
            assert sim.run_until(answered, limit_us=5_000_000), f"round {number}"
            assert not honest.is_lost
            metrics = sim.live.services.metrics
            failures = sim.logged("connection.failed")
            assert metrics.unexpected_errors == {}, f"round {number}: {failures}"
        sim.run_for(600_000_000)  # delayed wills, expiries
        assert sim.live.services.metrics.unexpected_errors == {}
        sim.stop()
        done += ROUNDS_PER_WORLD


def test_any_bytes_in_the_decoder() -> None:
    chance = random.Random(SEED)
    for _ in range(ROUNDS * 5):
        version = chance.choice((4, 5))
        noise = Noise(chance, version)
        head = bytes((chance.randrange(256), chance.randrange(256)))
        whole = b"".join(noise.mutated(noise.packet()) for _ in range(3))
        check_decoder(head + whole[: chance.choice((2_000, 20_000))])
        check_decoder(head + noise.mutated(noise.connect("c"))[:20_000])


def test_any_bytes_in_the_frame_reader() -> None:
    chance = random.Random(SEED)
    for _ in range(ROUNDS * 10):
        data = bytes((chance.randrange(256),))
        for _ in range(chance.randrange(12)):
            opcode = chance.choice((BINARY, BINARY, BINARY, CONTINUATION, PING, CLOSE, TEXT, 11))
            size = chance.choice((0, 1, 2, 125, 126, 300))
            length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
            first = opcode | chance.choice((0x80, 0x80, 0x80, 0, 0xC0))
            data += bytes((first,)) + length + chance.randbytes(4 + size)
        check_frames(Noise(chance, 4).mutated(data))


def test_times_and_content_filters_refuse_in_order() -> None:
    for text in (*DIGITS, *TIMES, "9" * 100_000):
        with contextlib.suppress(MqttError):
            assert parse_time_us(text) >= 0
    nasty = (*TEXTS, *DIGITS, '{"a":{"$in":[' + "1," * 20_000 + "1]}}", "[" * 200_000, "\ud800")
    seen = parse_filter('{"a.0": {"$gt": 1}, "$property.x": {"$lt": 5}, "b": "c"}')
    for text in nasty:
        with contextlib.suppress(ValueError):
            parse_filter(text)
        raw = text.encode("utf-8", "surrogatepass")
        assert seen.holds(raw, [("x", text)]) in (False, True)
        assert parse_filter('{"$payload": {"$gt": 1}}').holds(raw) in (False, True)


@pytest.mark.parametrize("start", [b"PROXY TCP4 ", SIGNATURE + b"\x21\x11", b""])
def test_any_bytes_before_the_handshake(start: bytes) -> None:
    chance = random.Random(SEED)
    for _ in range(ROUNDS * 10):
        tail = b" ".join(
            chance.choice((b"1.2.3.4", b"::1", b"9" * 30, b"\r\n", chance.randbytes(20)))
            for _ in range(6)
        )
        parse_proxy_header(start + tail)


def test_scram_messages_end_in_a_step() -> None:
    make = scram_factory(Users(), nonce=lambda: "nonce", decoy_key=b"k" * 32)
    chance = random.Random(SEED)
    for _ in range(ROUNDS * 5):
        noise = Noise(chance, 5)
        method = make(None)
        step = method.start("c", noise.mutated(chance.choice(SCRAM)))
        if step.state.name == "CONTINUE":
            method.step(noise.mutated(chance.choice(SCRAM)))


def test_the_grammar_reaches_what_it_is_about() -> None:
    """Else the runs above would show nothing."""
    chance = random.Random(SEED)
    said = b"".join(Noise(chance, 5).packet() for _ in range(300))
    for word in ("$replay/" + "9" * 4301, "$share/", "replay-from", *LEVELS[:3]):
        assert word.encode() in said
