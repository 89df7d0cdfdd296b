"""Files with a token: one a line, as ``metrics.token_file`` has them."""

from __future__ import annotations

from pathlib import Path


def first_token(file: Path) -> str:
    """The first token of a file; empty = it has none. Lines that begin with # are remarks."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")
