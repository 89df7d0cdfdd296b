"""The oldest unacknowledged message."""

from __future__ import annotations

import pytest

from perdure.model import Cursor, Message
from perdure.session.head import Head, unacknowledged_head
from perdure.session.outbound import Outbound
from perdure.session.seqno import PACKET_IDS


@pytest.mark.parametrize("cursor", [Cursor(), Cursor(offset=9, serial=4, sent=4)])
def test_nothing_is_unacknowledged(cursor: Cursor) -> None:
    assert unacknowledged_head(cursor) is None


def test_one_of_some() -> None:
    head = unacknowledged_head(Cursor(offset=9, serial=4, sent=10, settled=(6, 7)))
    assert head == Head(
        serial=5,
        packet_id=5,
        sent_after=5,
        settled_after=2,
        is_released=False,
        is_blocking=False,
    )
    assert head.awaits == "PUBACK or PUBREC"


def test_only_pubcomp_is_missing() -> None:
    head = unacknowledged_head(Cursor(serial=PACKET_IDS, sent=PACKET_IDS + 1, released=(65_536,)))
    assert head is not None
    assert (head.packet_id, head.is_released, head.awaits) == (1, True, "PUBCOMP")


def test_it_blocks_when_no_identifier_is_left() -> None:
    """As ``Outbound`` has it: the last message that it sends is the one before which it blocks."""
    outbound = Outbound(Cursor(), window_max=100_000)
    message = Message("t", b"", 1)
    for offset in range(1, PACKET_IDS + 1):
        head = unacknowledged_head(outbound.cursor()) if offset in {2, PACKET_IDS} else None
        assert head is None or not head.is_blocking
        delivery = outbound.offer(message, 1, False, (), offset)
        assert delivery is not None
        if offset > 1:
            outbound.acknowledge(delivery.packet_id)
    assert outbound.offer(message, 1, False, (), PACKET_IDS + 1) is None
    head = unacknowledged_head(outbound.cursor())
    assert head is not None
    assert head.is_blocking
    assert (head.sent_after, head.settled_after) == (65_534, 65_534)
