"""The garbage collector in small steps."""

from __future__ import annotations

import gc

import pytest

from perdure.server.collector import LEARNING_TURNS, STEP, THRESHOLDS, Collector, settle


class Heap:
    """Counts as ``gc.get_count`` does: what is freed of before the last walk counts too."""

    def __init__(self) -> None:
        self.new = 0
        self.walked: list[int] = []
        self.collector = Collector(lambda: self.new, self._walk)

    def _walk(self) -> None:
        self.walked.append(self.new)
        self.new = 0

    def turns(self, count: int, *, allocated: int, freed: int = 0) -> None:
        for _ in range(count):
            self.new = max(0, self.new - freed) + allocated
            self.collector.turn_ended()


def test_what_stays_is_walked_in_small_steps() -> None:
    heap = Heap()
    heap.turns(1_000, allocated=500)
    assert 1_000 * 500 - sum(heap.walked) < 2 * STEP
    assert max(heap.walked) <= STEP + LEARNING_TURNS * 500 + 500


@pytest.mark.parametrize("passing", [2, STEP - 1, 4 * STEP, 20 * STEP])
def test_what_comes_and_goes_is_not_walked(passing: int) -> None:
    heap = Heap()
    heap.turns(1_000, allocated=passing, freed=passing)
    assert heap.walked == []


def test_what_stays_is_walked_also_beside_what_comes_and_goes() -> None:
    heap = Heap()
    heap.turns(1_000, allocated=10 * STEP + 100, freed=10 * STEP)
    assert len(heap.walked) == pytest.approx(1_000 * 100 / STEP, rel=0.2)


def test_what_is_given_up_is_found_and_what_lives_is_walked_once() -> None:
    class Node:
        pass

    settle()
    walked: list[tuple[int, int]] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            walked.append((info["generation"], info["collected"]))

    collector = Collector()
    gc.callbacks.append(note)
    try:
        kept = []
        for _ in range(20):
            for _ in range(STEP // 4):
                pair = Node(), Node()
                kept.append(pair)
                lost = Node()
                lost.self = lost  # type: ignore[attr-defined]
            collector.turn_ended()
    finally:
        gc.callbacks.remove(note)
    assert {generation for generation, _ in walked} == {1}
    assert sum(collected for _, collected in walked) > 10 * STEP // 4
    assert len(kept) == 20 * (STEP // 4)


def test_a_single_turn_is_left_to_python() -> None:
    settle()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == THRESHOLDS
    assert THRESHOLDS[0] > STEP
