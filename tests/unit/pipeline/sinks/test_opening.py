"""The table of formats: every line opens, and what is none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

import pyarrow as pa

from perdure.errors import ConfigError
from perdure.pipeline.sinks.formats import SINKS
from perdure.pipeline.sinks.opening import open_sink


@pytest.mark.parametrize("kind", SINKS)
def test_every_line_opens(kind: str, tmp_path: Path) -> None:
    sink = open_sink(kind, tmp_path, None, "database")
    sink.begin("table", pa.schema([("offset", pa.int64()), ("topic", pa.string())]))
    assert sink.position("table") == 0
    assert sink.files("table") == []
    sink.close()


def test_a_format_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="orc") as caught:
        open_sink("orc", tmp_path, None, "database")
    assert caught.value.hint == f"one of {', '.join(SINKS)}"
