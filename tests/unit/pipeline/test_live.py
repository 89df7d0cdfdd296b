"""A stream's rate and how far it is behind."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from perdure.pipeline import live
from perdure.pipeline.live import StreamState, describe, state_of, watch
from perdure.pipeline.offsets import position
from tests.support.bounds import HANG_S


def offset(at: int) -> str:
    return json.dumps(position("db", 1, at).to_dict())


def progress(*sources: tuple[str | None, str | None], **others: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "numInputRows": 1_234,
        "processedRowsPerSecond": 5_678.9,
        "sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources],
        **others,
    }


@pytest.mark.parametrize(
    ("sources", "behind"),
    [
        ([(offset(1_000_000), offset(3_500_000))], 2.5),
        ([(offset(3_500_000), offset(3_500_000))], 0.0),
        # A message may have come between the two looks at the log.
        ([(offset(3_500_001), offset(3_500_000))], 0.0),
        ([(offset(1), offset(1_000_001)), (offset(1), offset(9_000_001))], 9.0),
        ([(offset(1), "None"), ('{"0":5}', '{"0":9}'), ("", None)], None),
        ([], None),
    ],
)
def test_how_far_behind(sources: list[tuple[str | None, str | None]], behind: float | None) -> None:
    assert state_of(progress(*sources)) == StreamState(7, 1_234, 5_678.9, behind)


def test_before_the_first_batch() -> None:
    assert state_of(None) is None
    assert describe(None) == "waiting for the first messages"
    none = progress(numInputRows=None, processedRowsPerSecond=None)
    assert state_of(none) == StreamState(7, 0, 0.0, None)


@pytest.mark.parametrize(
    ("behind", "text"),
    [
        (None, ""),
        (0.04, ", 0.0 s behind"),
        (90.06, ", 90.1 s behind"),
        (3_599, ", 60 min behind"),
        (86_400, ", 24.0 h behind"),
    ],
)
def test_a_line(behind: float | None, text: str) -> None:
    state = StreamState(7, 1_234, 5_678.9, behind)
    assert describe(state) == f"batch 7: 1,234 messages, 5,679/s{text}"


class Query:
    """A query that was asked once when it ends."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    @property
    def isActive(self) -> bool:
        return not self.asked.is_set()

    @property
    def lastProgress(self) -> dict[str, Any]:
        self.asked.set()
        return progress((offset(0), offset(2_000_000)))


def test_the_line_is_for_terminals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_S", 0.001)
    # What Rich takes for a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    silent = Query()
    with watch(silent, "rooms"):
        pass
    assert not silent.asked.is_set()
    shown = Query()
    with watch(shown, "rooms", show=True):
        assert shown.asked.wait(HANG_S)
    assert "rooms" in capsys.readouterr().err
