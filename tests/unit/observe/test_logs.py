"""Loggers: cheap, lazy, and they follow a change of the level."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.observe import logs
from tests.support.bounds import HANG_S
from tests.unit.fixtures import logging_as_before

__all__ = ["logging_as_before"]


def test_level_can_change_for_a_logger_in_use() -> None:
    out = io.StringIO()
    logs.configure(level="warning", format="json", stream=out)
    log = logs.get_logger("broker")
    log.info("a.b")
    assert not logs.is_debug()
    logs.configure(level="debug", format="json", stream=out)
    log.debug("c.d")
    assert logs.is_debug()
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["c.d"]


def test_configured_on_use(capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get_logger("broker")
    logs.configure_on_use(level="warning", format="json")
    log.info("a.b")
    log.warning("c.d")
    assert json.loads(capsys.readouterr().err)["event"] == "c.d"


def test_an_explicit_configuration_wins(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_on_use(level="error", format="json")
    logs.configure(level="info", format="json")
    logs.get_logger("broker").info("a.b")
    assert json.loads(capsys.readouterr().err)["event"] == "a.b"


def test_a_logger_that_is_not_used_loads_nothing() -> None:
    source = Path(logs.__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from perdure.observe import logs\n"
        "logs.get_logger('x'); logs.configure_on_use(level='info', format='json')\n"
        "assert 'structlog' not in sys.modules and 'rich' not in sys.modules\n"
        "logs.get_logger('x').info('a.b')\n"
        "assert 'structlog' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "a.b" in done.stderr
