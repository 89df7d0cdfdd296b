"""The file ``archive.json`` of an archive, and what of it needs no Arrow: the known gaps.

The rest of it is about tables (``archive_state``), which need the extra of the pipeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.pipeline.lake.stores import LOCAL, Store, below

NAME: Final = "archive.json"
VERSION: Final = 1


class Gap(msgspec.Struct, frozen=True):
    """Messages that are not in the archive: dropped before, or older than where it began."""

    after_offset: int
    until_offset: int


class _Version(msgspec.Struct):
    version: int = VERSION


class _Gaps(msgspec.Struct):
    gaps: tuple[Gap, ...] = ()


def load_archive_file(place: Path | str, store: Store = LOCAL) -> bytes | None:
    """The file of the archive at a place; None = there is none.

    Raises:
        FormatTooNew, StorageCorrupt: it cannot be used.
        StorageUnavailable: its store is not there now.
    """
    path = below(place, NAME)
    try:
        data = store.read(path)
    except FileNotFoundError:
        return None
    try:
        version = msgspec.json.decode(data, type=_Version).version
    except ValueError as error:
        raise damaged(place, error) from error
    if version > VERSION:
        raise FormatTooNew(f"{path} has version {version}; this release reads {VERSION}")
    return data


def load_gaps(place: Path | str, store: Store = LOCAL) -> tuple[Gap, ...] | None:
    """The gaps of the archive at a place, in order; None = there is no archive.

    Raises:
        FormatTooNew, StorageCorrupt: its file cannot be used.
        StorageUnavailable: its store is not there now.
    """
    data = load_archive_file(place, store)
    try:
        return None if data is None else msgspec.json.decode(data, type=_Gaps).gaps
    except ValueError as error:
        raise damaged(place, error) from error


def damaged(place: Path | str, error: ValueError) -> StorageCorrupt:
    """What to say of a file that is none."""
    return StorageCorrupt(f"{below(place, NAME)} is damaged: {error}")
