"""What runs, in which order, and what one that fails does to the others."""

from __future__ import annotations

import pytest
from benchmarks import __main__ as command
from benchmarks import summary


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names in the order in which they ran; ``page`` when the page was written."""
    order: list[str] = []

    def broken() -> bool:
        order.append("broken")
        raise RuntimeError("no server")

    def kept() -> bool:
        order.append("kept")
        return True

    def missed() -> bool:
        order.append("missed")
        return False

    table = {"broken": broken, "kept": kept, "missed": missed}
    monkeypatch.setattr(command, "BENCHMARKS", table)
    monkeypatch.setattr(summary, "write", lambda: order.append("page"))
    return order


def test_one_that_fails_keeps_the_others_from_nothing(
    ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([]) == 1
    assert ran == ["broken", "kept", "missed", "page"]
    told = capsys.readouterr().err
    assert "RuntimeError: no server" in told
    assert told.endswith("missed or failed: broken missed\n")


def test_some_by_name(ran: list[str]) -> None:
    assert command.main(["kept"]) == 0
    assert ran == ["kept", "page"]


def test_a_name_that_is_not_there(ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["kept", "fast"]) == 64
    assert ran == []
    assert "no benchmark 'fast'; there are broken kept missed" in capsys.readouterr().err
