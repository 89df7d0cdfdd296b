"""Changes at a rate, for each principal."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")
from perdure.admin.problems import Refused
from perdure.web import pace
from perdure.web.pace import CHANGES_BURST, CHANGES_PER_S, ChangePace
from perdure.web.problems import answer, as_problem


def test_a_burst_and_then_the_rate() -> None:
    now = [0.0]
    changes = ChangePace(clock=lambda: now[0])
    for _ in range(int(CHANGES_BURST)):
        changes.take("a")
    with pytest.raises(Refused) as caught:
        changes.take("a")
    response = answer(*as_problem(caught.value))
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    changes.take("b")
    now[0] += 2 / CHANGES_PER_S
    changes.take("a")
    changes.take("a")
    with pytest.raises(Refused):
        changes.take("a")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PRINCIPALS_MAX", 3)
    changes = ChangePace(clock=lambda: 0.0)
    for number in range(10):
        changes.take(str(number))
    assert len(changes._left) == 3
