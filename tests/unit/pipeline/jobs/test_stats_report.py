"""The report shows what was counted, and nothing that a client wrote becomes markup."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyarrow")

from perdure.pipeline.jobs.stats import Statistics
from perdure.pipeline.jobs.stats_report import render

AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
COUNTS = {"messages": 12_345, "bytes": 9, "clients": 1}


def test_a_report() -> None:
    page = render(
        Statistics(
            {**COUNTS, "structures": 2, "first": AT, "last": None},
            [
                {"structure": "a/<b>/+", **COUNTS, "last": AT},
                {"structure": "c", **COUNTS, "messages": 0, "last": AT},
            ],
            [{"client_id": '"><script>', "messages": 12_345, "last": AT}],
            [{"hour": AT, **COUNTS}, {"hour": AT + timedelta(hours=3), **COUNTS}],
            [{"client_id": "c", "interval_s": 1.5, "silent_s": None}],
            [{"client_id": "<slow>", "connected": False, "pending": 7, "oldest": AT}],
        ),
        title="<Traffic>",
    )
    assert "12\u2009345 messages, 9 bytes" in page
    assert "<script" not in page
    assert "a/&lt;b&gt;/+" in page
    assert "<title>&lt;Traffic&gt;</title>" in page
    assert page.count("<rect") == 2
    # Four hours, two of them empty: the last bar begins at three quarters.
    assert 'x="720.00"' in page
    assert '<th class="number">interval, s</th>' in page
    assert 'style="width: 100.0%"' in page
    assert 'style="width: 0.0%"' in page
    assert "<td>&lt;slow&gt;</td><td>no</td>" in page


def test_nothing_was_recorded() -> None:
    totals = {"messages": 0, "bytes": 0, "clients": 0, "structures": 0, "first": None, "last": None}
    page = render(Statistics(totals, [], [], [], []), title="x")
    assert page.count("Nothing was recorded.") == 3
    assert page.count("<p>None.</p>") == 1
    assert "Not looked at" in page


def test_no_session_is_behind() -> None:
    totals = {"messages": 0, "bytes": 0, "clients": 0, "structures": 0, "first": None, "last": None}
    page = render(Statistics(totals, [], [], [], [], []), title="x")
    assert page.count("<p>None.</p>") == 2
    assert "Not looked at" not in page
