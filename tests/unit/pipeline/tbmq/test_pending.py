"""The one form of a queue: what is owed, and when two are the same."""

from __future__ import annotations

import msgspec

from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.pipeline.tbmq.pending import Losses, PendingEntry, QueueSum, Summing

ENTRY = PendingEntry(1, 7, False, "t", b"x", 1, expires_at_us=5_000_000, published_at_us=1)


def _sum(*entries: PendingEntry) -> QueueSum:
    summing = Summing()
    for entry in entries:
        summing.add(entry)
    return summing.result()


def test_what_a_sum_sees() -> None:
    replace = msgspec.structs.replace
    whole = _sum(ENTRY)
    assert whole.matches(_sum(replace(ENTRY, place=9, forget_at_us=9, publisher="p")))
    for changed in (
        replace(ENTRY, packet_id=8),
        replace(ENTRY, payload=b"y"),
        replace(ENTRY, topic="u"),
        replace(ENTRY, qos=2),
        replace(ENTRY, retain=True),
        replace(ENTRY, identifiers=(1,)),
        replace(ENTRY, properties=forward_properties(Properties(content_type="c"))),
        replace(ENTRY, released=True),
        replace(ENTRY, expires_at_us=0),
        replace(ENTRY, expires_at_us=6_002_000),
    ):
        assert not whole.matches(_sum(changed)), changed
    assert whole.matches(_sum(replace(ENTRY, expires_at_us=5_900_000)))
    other = replace(ENTRY, packet_id=8)
    assert not _sum(ENTRY, other).matches(_sum(other, ENTRY))


def test_of_a_pubrel_only_the_identifier_counts() -> None:
    released = msgspec.structs.replace(ENTRY, released=True)
    bare = PendingEntry(1, 7, True, "", b"", 2)
    assert _sum(released).matches(_sum(bare))


def test_properties_in_another_order_are_the_same() -> None:
    pair, kind = b"\x26\x00\x01a\x00\x01b", b"\x03\x00\x01c"
    one = msgspec.structs.replace(ENTRY, properties=pair + kind)
    two = msgspec.structs.replace(ENTRY, properties=kind + pair)
    assert _sum(one).matches(_sum(two))


def test_losses_add_up() -> None:
    losses = Losses(1, 2, 3, 4, 5, 6, ["a"])
    losses.add(Losses(1, 1, 1, 1, 1, 1, ["b"]))
    assert losses == Losses(2, 3, 4, 5, 6, 7, ["a", "b"])
