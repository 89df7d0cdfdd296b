"""The fair queue of password checks: whose is next, and whose is given up."""

from __future__ import annotations

import random

from perdure.broker.auth.verify_queue import VerifyQueue


def drained(queue: VerifyQueue[str]) -> list[str]:
    found = []
    while (check := queue.take()) is not None:
        found.append(check)
    return found


def test_addresses_and_then_names_take_turns() -> None:
    queue: VerifyQueue[str] = VerifyQueue(total_max=100)
    for number in range(5):
        queue.add("A", "ada", f"ada{number}", trusted=False)
    queue.add("A", "bob", "bob", trusted=False)
    queue.add("B", "eve", "eve", trusted=False)
    assert drained(queue) == ["bob", "eve", "ada4", "ada3", "ada2", "ada1", "ada0"]
    assert queue.count == 0


def test_who_has_logged_in_before_comes_first() -> None:
    queue: VerifyQueue[str] = VerifyQueue(total_max=100)
    queue.add("A", "x", "stranger", trusted=False)
    queue.add("A", "ada", "ada", trusted=True)
    assert drained(queue) == ["ada", "stranger"]


def test_beyond_a_bound_the_oldest_of_who_is_to_blame_is_given_up() -> None:
    queue: VerifyQueue[str] = VerifyQueue(total_max=6, address_max=4, user_max=2)
    assert queue.add("A", "ada", "a1", trusted=False) is None
    assert queue.add("A", "ada", "a2", trusted=False) is None
    assert queue.add("A", "ada", "a3", trusted=False) == ("a1", "auth.verify_pending_per_user_max")
    assert queue.add("A", "bob", "b1", trusted=False) is None
    assert queue.add("A", "cyd", "c1", trusted=False) is None
    address = "auth.verify_pending_per_address_max"
    assert queue.add("A", "dan", "d1", trusted=False) == ("a2", address)
    assert queue.add("B", "eve", "e1", trusted=False) is None
    assert queue.add("B", "fay", "f1", trusted=True) is None
    # The one that waits longest, of the address with most: not of the one that has few.
    assert queue.add("B", "gus", "g1", trusted=False) == ("a3", "auth.verify_queue_max")
    assert sorted(drained(queue)) == ["b1", "c1", "d1", "e1", "f1", "g1"]


def test_every_check_comes_out_once() -> None:
    chance = random.Random(7)
    for _ in range(200):
        queue: VerifyQueue[str] = VerifyQueue(
            total_max=chance.randint(1, 12),
            address_max=chance.choice([0, 1, 3]),
            user_max=chance.choice([0, 1, 2]),
        )
        out: list[str] = []
        for number in range(60):
            given_up = queue.add(
                chance.choice("AB"),
                chance.choice("xyz"),
                str(number),
                trusted=chance.random() < 0.3,
            )
            if given_up is not None:
                out.append(given_up[0])
            assert queue.count <= queue.total_max
            if chance.random() < 0.4 and (check := queue.take()) is not None:
                out.append(check)
        out += drained(queue)
        assert sorted(out, key=int) == [str(number) for number in range(60)]


def test_names_that_have_failed_from_there_come_last() -> None:
    queue: VerifyQueue[str] = VerifyQueue(total_max=100)
    queue.add("A", "new", "new", trusted=False)
    for user in ("x1", "x2"):
        queue.add("A", user, user, trusted=False, has_failed=True)
    assert drained(queue) == ["new", "x1", "x2"]


def test_an_address_that_has_had_its_share_is_passed_over() -> None:
    queue: VerifyQueue[str] = VerifyQueue(total_max=100)
    queue.add("A", "x", "x", trusted=False)
    assert queue.take({"A"}) is None
    queue.add("B", "ada", "ada", trusted=False)
    queue.add("A", "own", "own", trusted=True)
    assert [queue.take({"A"}) for _ in range(3)] == ["own", "ada", None]
    assert queue.take() == "x"
