"""perdure health."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import run


@pytest.mark.parametrize(
    ("phase", "storage", "code"),
    [
        ("serving", "ok", 0),
        ("starting", "ok", 75),
        ("stopping", "ok", 75),
        ("serving", "refusing", 75),
        ("serving", "failed", 75),
    ],
)
def test_it_tells_by_its_exit_code(
    running: Any, tmp_path: Path, phase: str, storage: str, code: int
) -> None:
    running.phase, running.storage = phase, storage
    assert run(["health", "--data", str(tmp_path)]) == code
    assert run(["health", "--live", "--data", str(tmp_path)]) == 0


def test_no_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["health", "--data", str(tmp_path)]) == 69
    assert run(["health", "--live", "--data", str(tmp_path)]) == 69
