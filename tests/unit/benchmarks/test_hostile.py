"""The harness of attacks: what it calls broken, and packets as it writes them."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.hostile import wire
from benchmarks.hostile.__main__ import table
from benchmarks.hostile.attacker import ATTACKS
from benchmarks.hostile.harness import GROWTH_BYTES_MAX, Outcome, judge
from rich.console import Console

from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import Connect, Publish, Subscribe, Unsubscribe

GOOD = {"p50_ms": 4.0, "p99_ms": 20.0, "max_ms": 30.0}
TOTALS = dict.fromkeys(("lost", "repeated", "out_of_order", "refused", "unacknowledged"), 0)


def judged(
    *,
    ack: dict[str, float] | None = GOOD,
    delivery: dict[str, float] | None = GOOD,
    rate: float = 1000.0,
    growth: int = 0,
    probe_s: float = 0.0,
    log: str = "",
    **totals: int,
) -> Outcome:
    result: dict[str, Any] = {
        "phases": [{"ack": ack, "delivery": delivery, "done_per_s": rate}],
        "totals": TOTALS | totals,
    }
    return judge("pingreq", 7, result, growth_bytes=growth, probe_max_s=probe_s, log=log)


def test_a_broker_that_nobody_hurts_has_no_faults() -> None:
    outcome = judged(log="one line\n")
    assert outcome.faults == ()
    assert (outcome.done, outcome.ack_p99_ms, outcome.log_lines) == (7, 20.0, 1)


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        ({"ack": GOOD | {"p99_ms": 101.0}}, "slow"),
        ({"delivery": GOOD | {"p99_ms": 101.0}}, "slow"),
        ({"ack": None}, "slow"),
        ({"rate": 880.0}, "880 messages/s"),
        ({"growth": GROWTH_BYTES_MAX + 1}, "memory"),
        ({"probe_s": 2.1}, "health"),
        ({"log": "Traceback (most recent call last):\n"}, "1 tracebacks"),
        ({"lost": 3}, "3 lost"),
        ({"unacknowledged": 1}, "1 unacknowledged"),
    ],
)
def test_each_promise_can_be_broken(seen: dict[str, Any], fault: str) -> None:
    assert judged(**seen).faults == (fault,)


@pytest.mark.parametrize("is_wide", [True, False])
def test_the_table_names_every_attack(is_wide: bool) -> None:
    outcomes = [Outcome(name=name, faults=("slow",)) for name in ATTACKS]
    console = Console(width=132 if is_wide else 80, record=True)
    with console.capture() as shown:
        console.print(table(outcomes, is_wide=is_wide))
    assert all(name in shown.get() for name in ATTACKS)


def test_its_packets_are_what_they_should_be() -> None:
    decoder = Decoder(server_side=True, packet_size_max=1 << 20)
    data = wire.connect("c", user="u", password="p") + wire.publish("t", b"x", qos=1, packet_id=5)
    data += wire.subscribe(["a/+"], qos=1) + wire.unsubscribe(["a/+"]) + wire.PINGREQ
    connect, publish, subscribe, unsubscribe, ping = decoder.feed(data + wire.DISCONNECT)[:5]
    assert decoder.failure is None
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.username, connect.password) == ("c", "u", b"p")
    assert isinstance(publish, Publish)
    assert (publish.topic, publish.packet_id) == ("t", 5)
    assert isinstance(subscribe, Subscribe)
    assert isinstance(unsubscribe, Unsubscribe)
    assert ping.kind == 12


def test_a_will_and_an_expiry_are_what_they_should_be() -> None:
    decoder = Decoder(server_side=True, packet_size_max=1 << 20)
    will = wire.will("w", b"gone", delay_s=2)
    [connect] = decoder.feed(
        wire.connect("c", version=5, properties=wire.expiry(600), will=will, clean=False)
    )
    assert isinstance(connect, Connect)
    assert connect.will is not None
    assert (connect.will.topic, connect.will.payload, connect.will.delay_s) == ("w", b"gone", 2)
    assert connect.properties.session_expiry_interval == 600
