"""Reads a log in this process: for jobs that one core does sooner than Spark starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from perdure.pipeline import history, seam
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.schema import arrow_schema


def read_here(options: ReadOptions, columns: Sequence[str]) -> Any:
    """The rows of a range as an Arrow ``RecordBatchReader``, planned now and read as it is used.

    Raises:
        ConfigError, StorageError: the range cannot be read.
    """
    with opened(options) as index:
        parts = history.plan(index, options, Narrowing())

    def batches() -> Iterator[Any]:
        for part in parts:
            yield from seam.read(part, columns, options)

    return pa.RecordBatchReader.from_batches(arrow_schema(columns), batches())
