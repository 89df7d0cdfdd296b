"""Packet identifiers for a new owner: kept where they can be, never given twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.pipeline.tbmq.identifiers import resolve

ENTRIES = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2, 3, 5, 65_534, 65_535]), st.booleans()), max_size=12
)


def _resolve(
    identifiers: list[int], *, released: tuple[int, ...] = (), last: int = 0, unique: bool = True
) -> tuple[list[int], int]:
    flags = [index in released for index in range(len(identifiers))]
    found = resolve(identifiers, flags, last_packet_id=last, unique=unique)
    return found.identifiers, found.last_packet_id


def test_what_can_stay_stays() -> None:
    assert _resolve([65_534, 65_535, 1, 9], last=12) == ([65_534, 65_535, 1, 9], 12)
    assert _resolve([65_535, 1]) == ([65_535, 1], 1)
    assert _resolve([], last=7) == ([], 7)


def test_who_has_none_gets_one_that_nobody_has() -> None:
    assert _resolve([5, 0, 9], last=20) == ([5, 6, 9], 20)
    # 6 is another's; the next after the last is free, and new messages come after it.
    assert _resolve([5, 0, 6], last=6) == ([5, 7, 6], 7)
    assert _resolve([65_535, 0, 0]) == ([65_535, 1, 2], 2)
    assert _resolve([0, 0, 0]) == ([1, 2, 3], 3)


def test_a_repeated_identifier() -> None:
    assert _resolve([7, 8, 7], unique=False) == ([7, 8, 7], 7)
    assert _resolve([7, 8, 7], last=8) == ([7, 8, 9], 9)
    # The client has state under 7: the PUBREL keeps it.
    assert _resolve([7, 8, 7], released=(2,), last=8) == ([1, 8, 7], 8)


def test_a_second_pubrel_is_answered_with_the_first() -> None:
    found = resolve([7, 7, 0], [True, True, True], last_packet_id=7, unique=False)
    assert (found.identifiers, found.repeated, found.renumbered) == ([7, 0, 0], 2, 0)


@given(ENTRIES, st.sampled_from([0, 1, 6, 65_535]), st.booleans())
def test_any_queue(entries: list[tuple[int, bool]], last: int, unique: bool) -> None:
    identifiers = [each for each, _ in entries]
    released = [each for _, each in entries]
    found = resolve(identifiers, released, last_packet_id=last, unique=unique)
    kept = [each for each in found.identifiers if each]
    assert all(1 <= each <= 65_535 for each in kept)
    assert len(kept) == len(entries) - found.repeated
    if unique:
        assert len(set(kept)) == len(kept)
    changed = 0
    for before, after, is_pubrel in zip(identifiers, found.identifiers, released, strict=True):
        if is_pubrel:
            assert after in (before, 0)
        elif not unique and before:
            assert after == before
        changed += after not in (before, 0)
        if after not in (before, 0):
            assert found.identifiers.count(after) == 1
            assert after not in identifiers
    assert changed == found.renumbered
    if kept and not last:
        assert found.last_packet_id in kept


def test_a_full_queue_without_identifiers() -> None:
    found = resolve([0] * 65_535, [False] * 65_535, last_packet_id=100, unique=True)
    assert len(set(found.identifiers)) == 65_535


@pytest.mark.parametrize("last", [0, 3])
def test_the_longest_leap_is_found(last: int) -> None:
    identifiers = [*range(1, 65_535), 1]
    found = resolve(identifiers, [False] * 65_535, last_packet_id=last, unique=True)
    assert found.identifiers[-1] == 65_535
