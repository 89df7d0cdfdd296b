"""What the pipeline's commands say where it is not installed, or only in part."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import pytest

from perdure.cli.pipeline_options import opened_log, pipeline_installed
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.pipeline.options import ReadOptions


@pytest.mark.parametrize(
    "module", ["perdure.pipeline.log_source", "perdure.pipeline.decode", "numpy"]
)
def test_a_log_is_not_opened_without_numpy(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """``pyarrow`` comes without it."""
    for name in ("perdure.pipeline.log_source", "perdure.pipeline.decode"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    options = cast("ReadOptions", None)
    with pytest.raises(ConfigError, match="not installed"), opened_log(options):
        pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ("confluent_kafka", "kafka"),
        ("confluent_kafka.admin", "kafka"),
        ("hiredis", "redis"),
        ("pyspark.sql", "spark"),
        ("numpy", "spark"),
        (None, "spark"),
    ],
)
def test_the_extra_that_is_missing_is_named(missing: str | None, extra: str) -> None:
    with pytest.raises(ConfigError) as told, pipeline_installed():
        raise ModuleNotFoundError("no module", name=missing)
    assert told.value.hint == f"pip install 'perdure[{extra}]'"
