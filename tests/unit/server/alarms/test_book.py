"""When an alarm is raised, and when it is cleared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.server.alarms.book import CLEAR_SHARE, HISTORY_MAX, AlarmBook, Reading

S = 1_000_000
RAISE_S, CLEAR_S = 10, 30


def look(book: AlarmBook, second: float, value: float, threshold: float = 100) -> list[str]:
    """What changed, as ``+name`` and ``-name``."""
    changed = book.look(
        {"disk": Reading(value, threshold, f"{value} now")},
        now_us=round(second * S),
        wall_us=round(second * S),
        raise_after_us=RAISE_S * S,
        clear_after_us=CLEAR_S * S,
    )
    return [("-" if alarm.cleared_us else "+") + alarm.name for alarm in changed]


def test_it_is_raised_and_cleared_late() -> None:
    book = AlarmBook()
    assert look(book, 1, 100) == []
    assert look(book, 10.9, 120) == []
    assert look(book, 11, 130) == ["+disk"]
    assert look(book, 20, 140) == []
    assert book.raised["disk"].message == "140 now"
    # Between the clearing mark and the threshold nothing changes.
    assert look(book, 30, 81) == look(book, 90, 81) == []
    assert look(book, 100, 80) == look(book, 129, 80) == []
    assert look(book, 130, 10) == ["-disk"]
    assert not book.raised
    assert [alarm.raised_us for alarm in book.ended] == [11 * S]


def test_what_comes_and_goes_raises_nothing() -> None:
    book = AlarmBook()
    for second in range(0, 200, 5):
        assert look(book, second, 150 if second % 10 else 50) == []


def test_a_threshold_of_nothing_is_off_and_ends_an_alarm() -> None:
    book = AlarmBook()
    assert look(book, 1, 1e9, threshold=0) == look(book, 50, 1e9, threshold=0) == []
    look(book, 60, 200)
    assert look(book, 70, 200) == ["+disk"]
    look(book, 80, 200, threshold=0)
    assert look(book, 110, 200, threshold=0) == ["-disk"]


def test_a_reading_that_is_missing_is_well() -> None:
    book = AlarmBook()
    look(book, 1, 200)
    look(book, 11, 200)

    def nothing(second: int) -> int:
        return len(book.look({}, now_us=second * S, wall_us=1, raise_after_us=1, clear_after_us=S))

    assert [nothing(20), nothing(21), nothing(22)] == [0, 1, 0]


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 200)), max_size=60))
def test_raised_and_cleared_take_turns(steps: list[tuple[int, float]]) -> None:
    book = AlarmBook()
    second, turns, above_since, below_since = 0, [], None, None
    for wait, value in steps:
        second += wait
        above_since = (above_since or second) if value >= 100 else None
        below_since = (below_since or second) if value <= 100 * CLEAR_SHARE else None
        for turn in look(book, second, value):
            assert turn == ("-disk" if turns and turns[-1] == "+disk" else "+disk")
            turns.append(turn)
            if turn == "+disk":
                assert above_since is not None
                assert second - above_since >= RAISE_S
            else:
                assert below_since is not None
                assert second - below_since >= CLEAR_S
    assert len(book.ended) <= HISTORY_MAX
