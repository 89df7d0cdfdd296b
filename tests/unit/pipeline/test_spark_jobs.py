"""What a job asks Spark to read; that it does is in ``tests/spark``."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import StorageUnavailable

pytest.importorskip("pyarrow")
from perdure.pipeline.options import parse_options
from perdure.pipeline.spark_jobs import read_log, source_errors


class Recorder:
    """Takes note of what Spark's reader is told."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.read = self

    def format(self, name: str) -> Recorder:
        assert name == "perdure"
        return self

    def schema(self, text: str) -> Recorder:
        assert text.startswith("topic string")
        return self

    def option(self, name: str, value: str) -> Recorder:
        self.given[name] = value
        return self

    def options(self, **values: str) -> Recorder:
        self.given |= values
        return self

    def load(self, path: str = "") -> dict[str, str]:
        return self.given | ({"path": path} if path else {})


@pytest.mark.parametrize(
    "options",
    [
        {"path": "db", "topic": '["a/+","b"]', "from": "5", "until": "9"},
        {"url": "http://h:1", "token": "t" * 32, "timeout": "90s", "where": '{"t":{"$gt":1}}'},
        {"url": "https://h:1", "caFile": "ca.pem", "compression": "zstd"},
    ],
)
def test_the_source_is_given_what_the_command_was(options: dict[str, str]) -> None:
    checked = parse_options(options, 0)
    given: Any = read_log(Recorder(), checked, ["topic"])
    assert parse_options(given, 0) == checked


def test_what_the_source_says_becomes_an_error_of_ours() -> None:
    with pytest.raises(StorageUnavailable, match=r"^it is gone$"), source_errors():
        raise RuntimeError("x\nSourceError: perdure: it is gone\n  at y")
    with pytest.raises(RuntimeError, match="another"), source_errors():
        raise RuntimeError("another")
