"""Tests of what is done without a server: left out here, failed in CI."""

from __future__ import annotations

import pytest

from tests.support import needs


@pytest.mark.parametrize(
    ("is_ci", "outcome"), [(False, pytest.skip.Exception), (True, pytest.fail.Exception)]
)
def test_a_missing_server_fails_in_ci_alone(
    monkeypatch: pytest.MonkeyPatch, is_ci: bool, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(needs, "CI", is_ci)
    with pytest.raises(outcome, match="Redis is not installed"):
        needs.missing("Redis is not installed")
