"""Backups that the broker makes by itself: the section `backup`."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import MIB, Section


@final
class BackupConfig(Section, frozen=True):
    """Backups of the data directory that the broker makes by itself."""

    to: Annotated[
        str,
        about(
            "Where backups go: a directory, or `s3://bucket/prefix`. `perdure backup` without "
            "`--to` uses it, too.",
            unit="path",
        ),
    ] = ""
    every: Annotated[
        int,
        about(
            "Time between two backups; 0 = none is made. The first is made so long after the last "
            "one that is there, at once if that was longer ago.",
            unit="s",
            ge=0,
            le=31_536_000,
        ),
    ] = 0
    keep: Annotated[
        int,
        about("Backups that stay, the newest; 0 = all.", ge=0, le=100_000),
    ] = 7
    rate: Annotated[
        int,
        about(
            "Bytes per second that a backup copies; 0 = no bound. The broker's syncs share the "
            "disk with it.",
            unit="bytes",
            ge=0,
            le=1024 * 1024 * 1024 * 1024,
        ),
    ] = 64 * MIB
