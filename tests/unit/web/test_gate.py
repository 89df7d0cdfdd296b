"""Who waits longest makes room; who is being answered never does."""

from __future__ import annotations

from perdure.web.gate import ANSWERING, BODY, RESERVE, STALLED, WAITING, Gate


class Peer:
    def __init__(self, gate: Gate) -> None:
        self.is_reserve = False
        self.was_evicted = False
        self.checked_s = 0.0
        self.is_in = gate.enter(self)

    def evict(self) -> None:
        self.was_evicted = True

    def check(self, now_s: float) -> None:
        self.checked_s = now_s


def test_the_one_that_waits_longest_goes() -> None:
    gate = Gate(4)
    first, second, third, fourth = [Peer(gate) for _ in range(4)]
    gate.put(first, ANSWERING)
    gate.put(second, WAITING)  # it waits anew
    fifth = Peer(gate)
    assert [each.was_evicted for each in (first, second, third, fourth)] == [0, 0, 1, 0]
    assert fifth.is_in
    assert not fifth.is_reserve
    assert len(gate) == 4
    gate.leave(third)  # it has left already
    assert len(gate) == 4


def test_bodies_and_stalled_answers_go_after_those() -> None:
    gate = Gate(3)
    stalled, body, waiting = [Peer(gate) for _ in range(3)]
    gate.put(stalled, STALLED)
    gate.put(body, BODY)
    order = []
    for _ in range(3):
        gate.put(Peer(gate), ANSWERING)
        order.append([each.was_evicted for each in (waiting, body, stalled)].count(True))
    assert order == [1, 2, 3]


def test_while_all_are_answered_a_few_more_may_ask_for_health() -> None:
    gate = Gate(2)
    busy = [Peer(gate) for _ in range(2)]
    for each in busy:
        gate.put(each, ANSWERING)
    more = []
    for _ in range(RESERVE):
        more.append(Peer(gate))
        gate.put(more[-1], ANSWERING)
    assert all(each.is_in and each.is_reserve for each in more)
    assert not Peer(gate).is_in
    gate.put(more[0], WAITING)
    assert Peer(gate).is_in
    assert more[0].was_evicted


def test_a_sweep_reaches_everybody() -> None:
    gate = Gate(8)
    peers = [Peer(gate) for _ in range(3)]
    gate.leave(peers[1])
    gate.put(peers[1], BODY)
    gate.sweep(7.0)
    assert [each.checked_s for each in peers] == [7.0, 0.0, 7.0]
