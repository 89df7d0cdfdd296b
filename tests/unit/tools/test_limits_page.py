"""The page of limits has every setting that bounds something, and says nothing of others."""

from __future__ import annotations

from perdure.config.fields import settings
from perdure.config.schema import Config
from tools.limits_page import SEEN, limits, reference
from tools.references import TARGET


def test_page_is_current() -> None:
    assert (TARGET / "limits.md").read_text(encoding="utf-8") == reference(), "run: make docs"


def test_what_is_seen_is_said_of_limits_that_there_are() -> None:
    assert set(SEEN) <= {setting.path for setting in limits()}


def test_all_of_the_sections_of_limits_are_on_it() -> None:
    page = reference()
    found = {setting.path for setting in limits()}
    for setting in settings(Config):
        if setting.path.startswith("limits."):
            assert setting.path in found
            assert f"| `{setting.path.removeprefix('limits.')}` |" in page
            # What is bounded is refused, or waits: either is said.
            assert setting.path in SEEN or setting.unit == "s"


def test_ranges_are_written_as_an_operator_would() -> None:
    page = reference()
    assert "| `content_filter_bytes_max` | `4KiB` | bytes | 2B to 64KiB | live |" in page
    assert "| `sessions_max` | `1000000` |  | from 0 | live |" in page
