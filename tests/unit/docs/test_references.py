"""The generated pages are current."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")
from tools.log_events import events
from tools.references import PAGES, TARGET


@pytest.mark.parametrize("name", ["error-codes.md"])
def test_pages_are_current(name: str) -> None:
    assert (TARGET / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"


def test_events_are_found() -> None:
    found = {event.name: event for event in events()}
    assert found["session.held_up"].levels == {"warning"}
    assert "client_id" in found["session.held_up"].fields
    page = (TARGET / "log-events.md").read_text(encoding="utf-8")
    assert "| `session.held_up` |" in page
