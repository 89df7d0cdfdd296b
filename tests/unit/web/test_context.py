"""Few lines in a second, whatever clients do: the broker's loop reads each of them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette")
from perdure.web.context import REPORTS_PER_S_MAX, PacedReport


def test_lines_are_few_and_what_is_left_out_is_counted() -> None:
    now = [5.0]
    told: list[dict[str, Any]] = []
    report = PacedReport(lambda event, **fields: told.append(fields), clock=lambda: now[0])
    for number in range(1000):
        report("http.refused", number=number)
    assert [each["number"] for each in told] == list(range(REPORTS_PER_S_MAX))
    now[0] += 1
    report("http.refused", number=-1)
    assert told[-1] == {"number": -1, "left_out": 1000 - REPORTS_PER_S_MAX}
    report("http.refused", number=-2)
    assert told[-1] == {"number": -2}
