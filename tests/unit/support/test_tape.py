"""The tape finds what a bridge did wrong, and forgives what the other broker did."""

from __future__ import annotations

import pytest

from tests.support import packets
from tests.support.tape import Tape


def tape(*connections: str) -> Tape:
    """Each connection in words: ``a1`` a PUBLISH of QoS 1, ``b2`` one of QoS 2, ``!a`` its
    acknowledgement, ``-b`` PUBREL and ``!B`` PUBCOMP; the packet identifier is the letter."""
    found = Tape(5)
    for number, words in enumerate(connections):
        for word in words.split():
            name, last = word[-2:]
            if name in "!-":
                is_back = name == "-"
                kind = packets.PUBCOMP if last.isupper() else packets.PUBACK
                kind = packets.PUBREL if is_back else kind
                data = packets.acknowledgement(kind, ord(last.lower()))
            else:
                is_back = True
                data = packets.publish(
                    "t", name.encode(), qos=int(last), packet_id=ord(name), dup=False, protocol=5
                )
            for place in range(len(data)):
                found.record(number, is_back, data[place : place + 1])
    return found


@pytest.mark.parametrize(
    ("connections", "log"),
    [
        (["a1 b2 !a !b"], "ab"),
        (["b1 a1 !b !a"], "ba"),  # the other broker's own order
        (["a1 b1", "a1 b1 !a !b"], "ab"),
        (["a1 b1", "a1 b1 !a !b"], "aab"),
        (["a1 b1", "a1 b1 !a !b"], "abab"),
        (["a2 b2", "a2 b2 !a !b"], "ab"),
        (["a1 b1", "b1 a1 !b !a"], "ba"),
        (["a2 !a -a", "a2 -a !A"], "a"),
        (["a2 !a -a", "a2 !a -a !A"], "aa"),  # released, and sent again by the other broker
    ],
)
def test_what_can_have_been(connections: list[str], log: str) -> None:
    assert tape(*connections).explains([each.encode() for each in log])


@pytest.mark.parametrize(
    ("connections", "log"),
    [
        (["a1 b2 !a !b"], "ba"),
        (["a1 b2 !a !b"], "a"),  # acknowledged, and lost
        (["a1 !a"], "aa"),
        (["a1 b1", "a1 b1 !a !b"], "abb"),
        (["a2 b2 !a !b", "a2 b2"], "aba"),  # QoS 2 twice
        (["a2 b2", "a2 b2 !a !b"], "aab"),
        (["a2 !a -a !A", "a2 !a"], "a"),  # released, and a new message is left out
    ],
)
def test_what_cannot(connections: list[str], log: str) -> None:
    assert not tape(*connections).explains([each.encode() for each in log])


def test_what_the_bridge_sent_after_its_release() -> None:
    found = Tape(5)
    publish = packets.publish("t", b"x", qos=2, packet_id=7, dup=False, protocol=5)
    found.record(0, False, publish)
    found.record(1, False, publish + packets.acknowledgement(packets.PUBREL, 7))
    assert found.sent_after_release == []
    found.record(2, False, publish)
    assert found.sent_after_release == [b"x"]
