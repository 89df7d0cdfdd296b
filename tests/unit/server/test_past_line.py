"""Clients take turns, whatever each of them asks for."""

from __future__ import annotations

import random

from perdure.server.past_line import PastLine


def test_clients_take_turns() -> None:
    line: PastLine[str] = PastLine()
    for request in ("a1", "a2", "a3", "b1", "c1", "c2"):
        line.put(request[0], request)
    assert list(line.waiting()) == ["a1", "b1", "c1"]
    taken = []
    while (found := line.take()) is not None:
        taken.append(found[1])
        if found[1] == "b1":
            line.put("b", "b2")
    assert taken == ["a1", "b1", "c1", "a2", "b2", "c2", "a3"] or taken == [
        "a1", "b1", "c1", "a2", "c2", "b2", "a3",
    ]  # fmt: skip
    assert len(line) == 0


def test_those_whose_time_is_over_go() -> None:
    line: PastLine[int] = PastLine()
    for number in range(10):
        line.put(str(number % 3), number)
    assert sorted(line.drop(lambda each: each % 2 == 0)) == [0, 2, 4, 6, 8]
    assert len(line) == 5
    assert sorted(line.clear()) == [1, 3, 5, 7, 9]
    assert len(line) == 0
    assert line.take() is None


def test_each_client_has_one_between_two_of_another() -> None:
    chance = random.Random(1)
    for _ in range(50):
        line: PastLine[tuple[str, int]] = PastLine()
        for number in range(chance.randrange(1, 60)):
            client = chance.choice("abcde")
            line.put(client, (client, number))
        last: dict[str, int] = {}
        order: list[str] = []
        while (found := line.take()) is not None:
            client, (of, number) = found
            assert client == of
            assert last.get(client, -1) < number
            last[client] = number
            order.append(client)
        for at, client in enumerate(order):
            if client in order[:at]:
                begin = max(n for n in range(at) if order[n] == client)
                between, left = order[begin + 1 : at], set(order[at:])
                assert left - {client} <= set(between)
