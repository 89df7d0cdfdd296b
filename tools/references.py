"""Writes the reference pages of configuration and metrics: ``python -m tools.references``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.config.reference import reference
from perdure.observe.metric_table import reference as metrics_reference

TARGET: Final = Path(__file__).parents[1] / "docs/reference"

if __name__ == "__main__":
    (TARGET / "configuration.md").write_text(reference(), encoding="utf-8")
    (TARGET / "metrics.md").write_text(metrics_reference(), encoding="utf-8")
