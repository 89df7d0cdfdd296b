"""The table formats of an archive: a line for each.

A new one is a module below ``perdure/pipeline/sinks/`` with a function
``open_sink(lake: Lake, database_id: str) -> Sink`` (``sinks/contract.py``), and a line here. No
module is imported before its format is asked for: each needs packages that others do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SINKS: Final[Mapping[str, str]] = {
    "iceberg": "perdure.pipeline.sinks.iceberg",
    "delta": "perdure.pipeline.sinks.delta",
    "parquet": "perdure.pipeline.sinks.parquet",
}
"""Modules by the name that ``--format`` takes; the first one is the default."""
