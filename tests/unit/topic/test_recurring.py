"""What comes again is known, what comes once hardly ever is, and none of it is kept."""

from __future__ import annotations

from perdure.topic.recurring import NEW_MAX, Recurring


def test_the_second_time_is_known() -> None:
    recurring = Recurring()
    assert not recurring.is_recurring("a/b")
    assert recurring.is_recurring("a/b")
    assert recurring.is_recurring("a/b")


def test_few_topics_are_taken_for_others() -> None:
    recurring = Recurring()
    topics = [f"a/{number}" for number in range(NEW_MAX)]
    assert sum(map(recurring.is_recurring, topics)) < len(topics) // 250
    assert all(map(recurring.is_recurring, topics))


def test_it_does_not_fill_up() -> None:
    recurring = Recurring()
    taken = sum(recurring.is_recurring(f"a/{number}") for number in range(5 * NEW_MAX))
    assert taken < 5 * NEW_MAX // 250
    assert recurring.is_recurring(f"a/{5 * NEW_MAX - 1}")
