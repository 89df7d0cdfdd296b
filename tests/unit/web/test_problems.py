"""Errors as answers: codes, statuses, headers."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("starlette")
from perdure.errors import (
    ConfigError,
    FormatTooNew,
    PerdureError,
    StorageCorrupt,
    StorageFull,
    StorageUnavailable,
)
from perdure.pipeline.protocol import Problem
from perdure.web.problems import CODES, ApiError, answer, as_problem, codes


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ApiError("unauthorized", "m"), 401, "unauthorized"),
        (ConfigError("m"), 400, "config_invalid"),
        (StorageUnavailable("m"), 410, "storage_unavailable"),
        (StorageCorrupt("m"), 500, "storage_corrupt"),
        (FormatTooNew("m"), 501, "format_too_new"),
    ],
)
def test_each_error_has_a_status_and_keeps_its_code(
    error: PerdureError, status: int, code: str
) -> None:
    error.hint = "h"
    assert as_problem(error) == (status, Problem(code, "m", {"hint": "h"}))
    assert codes()[code].status == status


def test_what_was_not_thought_of_is_a_defect() -> None:
    assert as_problem(StorageFull("m")) == (500, Problem("internal", "m"))


def test_an_answer_is_json_that_nobody_keeps() -> None:
    made = answer(503, Problem("busy", "m", request_id="r"))
    assert msgspec.json.decode(made.body) == {
        "code": "busy",
        "message": "m",
        "details": {},
        "request_id": "r",
    }
    assert made.headers["retry-after"] == "1"
    assert made.headers["cache-control"] == "no-store"
    assert answer(401, Problem("unauthorized", "m")).headers["www-authenticate"] == (
        'Bearer realm="perdure"'
    )


def test_statuses_are_those_of_errors() -> None:
    assert all(400 <= status < 600 for status in CODES.values())
