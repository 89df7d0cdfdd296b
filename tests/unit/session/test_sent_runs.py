"""Runs of what was sent: against a plain list, with acknowledgements in any order."""

from __future__ import annotations

import random

import pytest

from perdure.model import Cursor, InboxEntry, Message
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.puback_run import PubackRun
from perdure.session.outbound import Outbound
from perdure.session.sent_runs import SentRuns
from perdure.session.seqno import PACKET_IDS, packet_id_of


def _pubacks(*serials: int) -> PubackRun:
    return PubackRun(b"".join(b"\x40\x02%b" % packet_id_of(s).to_bytes(2, "big") for s in serials))


def _messages(*offsets: int) -> list[Message]:
    return [Message("t", b"", 1, offset=offset) for offset in offsets]


def _shapes(runs: SentRuns) -> list[tuple[int, int, int]]:
    return [(run.serial, run.offset, run.count) for run in runs.runs()]


def test_what_follows_joins_the_run_and_anything_else_begins_one() -> None:
    runs = SentRuns()
    runs.add(1, 100, 5, (), "")
    runs.add(6, 105, 2, (), "")
    runs.add(8, 200, 1, (), "")  # other offsets
    runs.add(10, 201, 1, (), "")  # a serial number is left out
    runs.add(11, 202, 1, (7,), "")  # another subscription
    runs.add(12, 203, 1, (7,), "g/t")  # a group gave it
    assert _shapes(runs) == [(1, 100, 7), (8, 200, 1), (10, 201, 1), (11, 202, 1), (12, 203, 1)]


@pytest.mark.parametrize(
    ("serial", "left"),
    [
        (5, [(6, 106, 4)]),
        (9, [(5, 105, 4)]),
        (7, [(5, 105, 2), (8, 108, 2)]),
    ],
)
def test_taking_one_parts_the_run(serial: int, left: list[tuple[int, int, int]]) -> None:
    runs = SentRuns()
    runs.add(5, 105, 5, (3,), "g/t")
    taken = runs.take(serial)
    assert taken is not None
    assert (taken.serial, taken.offset, taken.count) == (serial, serial + 100, 1)
    assert (taken.identifiers, taken.group_key) == ((3,), "g/t")
    assert _shapes(runs) == left
    assert runs.take(serial) is None
    assert all(run.identifiers == (3,) and run.group_key == "g/t" for run in runs.runs())


@pytest.mark.parametrize("first", [1, PACKET_IDS - 20, 3 * PACKET_IDS - 7])
@pytest.mark.parametrize("seed", range(5))
def test_a_session_counts_as_with_an_object_for_each(first: int, seed: int) -> None:
    """Runs of acknowledgements that are in order, out of order, repeated and unknown."""
    chance = random.Random(seed)
    outbound = Outbound(Cursor(0, first - 1), window_max=100)
    offset, sent, settled, edge = 0, {first - 1: 0}, {first - 1}, first - 1
    for _ in range(300):
        room = min(outbound.room_for_run(offset + 1), chance.randint(0, 20))
        offsets = []
        for _ in range(room):
            offset += chance.choice([1, 1, 1, 2])
            offsets.append(offset)
        sent.update(enumerate(offsets, start=outbound.next_serial))
        if len(offsets) == 1:
            assert outbound.offer_plain(offset, (), "") == packet_id_of(outbound.next_serial - 1)
        elif offsets:
            outbound.offer_run(_messages(*offsets), ())
        due = sorted(set(sent) - settled)
        acknowledged = due[: chance.randint(0, len(due))]
        if chance.random() < 0.5:
            acknowledged = acknowledged[::2] + acknowledged[:1] + acknowledged[1::2]
        if chance.random() < 0.2:
            acknowledged.append(outbound.next_serial + 5)
        assert not outbound.acknowledge_run(_pubacks(*acknowledged))
        settled.update(serial for serial in acknowledged if serial in sent)
        while edge + 1 in settled:
            edge += 1
        assert outbound.acked_serial == edge
        assert outbound.acked_offset == sent[edge]
        assert outbound.inflight.count == len(sent) - len(settled)
        assert sorted(d.serial for d in outbound.inflight.values()) == sorted(set(sent) - settled)
        assert {d.offset for d in outbound.inflight.values()} == {
            sent[serial] for serial in set(sent) - settled
        }
        assert outbound.oldest_offset() == min(
            (sent[serial] for serial in set(sent) - settled), default=0
        )


def test_what_a_group_gave_is_said() -> None:
    outbound = Outbound(Cursor(0, 0), window_max=100)
    outbound.offer_run(_messages(10, 11, 12), ())
    entries = [InboxEntry(offset, None, qos=1, group_key="g/t") for offset in (13, 14)]
    outbound.offer_entries(entries)
    assert not outbound.acknowledge_run(_pubacks(1, 2, 3))
    assert outbound.acknowledge_run(_pubacks(4, 5))
    assert outbound.is_idle()


def test_a_wrong_acknowledgement_ends_a_run_after_those_before_it() -> None:
    outbound = Outbound(Cursor(0, 0), window_max=100)
    outbound.offer_run(_messages(1, 2), ())
    outbound.offer(Message("t", b"", 2), 2, False, (), 3)
    with pytest.raises(ProtocolViolation):
        outbound.acknowledge_run(_pubacks(1, 2, 3))
    assert outbound.acked_serial == 2
    assert outbound.inflight.count == 1


def test_a_session_that_has_sent_nothing_shares_its_list() -> None:
    one, other = SentRuns(), SentRuns()
    one.add(1, 1, 1, (), "")
    assert other.runs() == []
