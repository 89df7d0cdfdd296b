"""The pipeline: formats, foreign loggers and the repeat limiter."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
import structlog

from perdure.observe import log_pipeline as pipeline
from perdure.observe.logs import get_logger
from tests.unit.fixtures import logging_as_before

__all__ = ["logging_as_before"]


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_have_event_level_room_and_time() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="auto", stream=out)
    get_logger("net").info("connection.opened", client_id="c/1", port=7)
    get_logger("net").debug("connection.read")
    (line,) = lines(out)
    assert line.pop("time").endswith("Z")
    assert line == {
        "room": "net",
        "client_id": "c/1",
        "port": 7,
        "event": "connection.opened",
        "level": "info",
    }


def test_console_names_the_event() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="console", stream=out)
    get_logger("broker").warning("session.taken_over", client_id="x")
    text = out.getvalue()
    assert "session.taken_over" in text
    assert "client_id=x" in text
    assert "\x1b[" not in text


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="json", stream=out)
    get_logger("x").info("a.b", error=OSError(28, "full"))
    assert lines(out)[0]["error"] == "[Errno 28] full"


def test_an_exception_is_told() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="json", stream=out)
    try:
        raise ValueError("why")
    except ValueError:
        get_logger("x").exception("a.b")
    assert "ValueError: why" in lines(out)[0]["exception"]


def test_loggers_of_dependencies_use_the_same_pipe() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="json", stream=out)
    logging.getLogger("websockets").warning("trouble %d", 7)
    logging.getLogger("websockets").info("chatter")
    (line,) = lines(out)
    assert line["event"] == "trouble 7"
    assert line["logger"] == "websockets"
    assert line["level"] == "warning"


def test_repeats_are_dropped_and_counted() -> None:
    out = io.StringIO()
    now = FakeTime()
    pipeline.configure(
        level="info", format="json", stream=out, repeat_max=2, repeat_window_s=10, monotonic=now
    )
    log = get_logger("net")
    for _ in range(7):
        log.warning("peer.bad")
    log.warning("other.event")
    now.now = 10.0
    log.warning("peer.bad")
    log.warning("peer.bad")
    found = [(line["event"], line.get("suppressed")) for line in lines(out)]
    assert found == [
        ("peer.bad", None),
        ("peer.bad", None),
        ("other.event", None),
        ("peer.bad", 5),
        ("peer.bad", None),
    ]


def test_what_is_limited_already_is_not_limited_again() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="json", stream=out, repeat_max=1, monotonic=FakeTime())
    for _ in range(3):
        get_logger("x").warning("publish.refused", suppressed=0)
    get_logger("x").info("publish.refused", suppressed=0)
    get_logger("x").debug("publish.refused", suppressed=0)
    assert len(lines(out)) == 4


def test_foreign_repeats_are_dropped_too() -> None:
    out = io.StringIO()
    pipeline.configure(level="info", format="json", stream=out, repeat_max=1, monotonic=FakeTime())
    for number in range(3):
        # What a client sent stands in such texts: they are one event all the same.
        logging.getLogger("x").error(f"bad request {number}")  # noqa: G004
    assert len(lines(out)) == 1


def test_limiter_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "REPEAT_KEYS_MAX", 3)
    limiter = pipeline.RepeatLimiter(1, window_s=10, monotonic=FakeTime())
    for number in range(10):
        assert limiter(None, "info", {"logger": f"e{number}"}) == {"logger": f"e{number}"}
    with pytest.raises(structlog.DropEvent):
        limiter(None, "info", {"logger": "e9"})


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_what_clients_say_is_not_obeyed_by_a_terminal(log_format: str) -> None:
    """Nor is it another line."""
    out = io.StringIO()
    pipeline.configure(level="info", format=log_format, stream=out)
    get_logger("x").info("a.b", reason="\x1b[2J\nforged\x9b\u202e")
    (line,) = out.getvalue().splitlines()
    assert line.isprintable()
    assert "forged" in line
