"""Attacks of a client whose payloads are compared with the content filters of its own session."""

from __future__ import annotations

import json

from benchmarks.hostile import wire
from benchmarks.hostile.costly import LEVELS, overlapping
from benchmarks.hostile.floods import answered, drain
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

_FILTERS = 1_000
_PAYLOAD_BYTES = 1 << 20
"""More is not looked into."""
_DEPTH = 60
"""Deeper is not looked into."""


def _compared(attacker: Attacker, name: str, field: str, payload: bytes) -> None:
    """Send a payload to a topic that many subscriptions want, each with a filter of its own."""
    opened = attacker.client(wire.connect(name, version=5))
    drain(opened)
    for number, topic_filter in enumerate(overlapping(_FILTERS)):
        condition = wire.text("filter") + wire.text(json.dumps({field: {"$gt": number}}))
        body = b"\x00\x07" + wire.length(len(condition) + 1) + b"\x26" + condition
        opened.sendall(wire.packet(0x82, body + wire.text(topic_filter) + b"\x01"))
        attacker.done += 1
    topic = "/".join(LEVELS)
    piece = b"".join(wire.publish(topic, payload, qos=1, packet_id=n + 1) for n in range(4))
    answered(attacker, piece, 4)


@attack("json", "payloads of 1 MB of JSON beside 1,000 content filters")
def json_large(attacker: Attacker) -> None:
    members = {f"field{number}": number / 7 for number in range(_PAYLOAD_BYTES // 34)}
    _compared(attacker, "json", "field7", json.dumps(members).encode())


@attack("json-nested", "1 MB of arrays 60 deep beside 1,000 content filters on what is in them")
def json_nested(attacker: Attacker) -> None:
    deep = b'{"a":' * _DEPTH + b"1" + b"}" * _DEPTH
    payload = b'{"b":' + deep + b',"c":[' + b",".join([deep] * (_PAYLOAD_BYTES // 400)) + b"]}"
    _compared(attacker, "json-nested", "b" + ".a" * _DEPTH, payload)
