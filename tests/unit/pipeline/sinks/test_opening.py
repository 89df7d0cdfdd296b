"""The table of formats: every line opens, and what is none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

import pyarrow as pa

from perdure.errors import ConfigError
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.sinks.formats import SINKS
from perdure.pipeline.sinks.opening import open_sink


@pytest.mark.parametrize("kind", SINKS)
def test_every_line_opens(kind: str, tmp_path: Path) -> None:
    sink = open_sink(Lake(str(tmp_path), kind), "database")
    sink.begin("table", pa.schema([("offset", pa.int64()), ("topic", pa.string())]))
    assert sink.position("table") == 0
    assert sink.files("table") == []
    sink.close()


def test_a_format_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="orc") as caught:
        open_sink(Lake(str(tmp_path), "orc"), "database")
    assert caught.value.hint == f"one of {', '.join(SINKS)}"
