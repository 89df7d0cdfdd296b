"""``perdure.files``: which files a data directory has had, so that one that is gone is missed.

A file that a broker makes if there is none would be made anew without a word when it was deleted,
and be another. So once it is there its name is noted here, with what tells it from any other.

::

    {"files": {"broker.key": "0c1f…", "bans": ""}, "checksum": 2774019231}

Invariant: a name is noted only after its file was there.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.files import replace_file

RECORD_FILE: Final = "perdure.files"


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: dict[str, str]
    checksum: int


@final
class DirectoryRecord(msgspec.Struct, frozen=True):
    """What is noted of a directory.

    Attributes:
        files: names, each with what tells the file from any other; empty = nothing does.
        is_there: there is a record. One that cannot be read is none.
    """

    files: dict[str, str]
    is_there: bool = True


_decoder = msgspec.json.Decoder(_Kept)


def read_record(directory: Path) -> DirectoryRecord:
    """What is noted of a directory."""
    try:
        kept = _decoder.decode((directory / RECORD_FILE).read_bytes())
    except (OSError, ValueError):
        return DirectoryRecord({}, is_there=False)
    if kept.checksum != _sum(kept.files):
        return DirectoryRecord({}, is_there=False)
    return DirectoryRecord(kept.files)


def write_record(directory: Path, files: Mapping[str, str]) -> None:
    """Note these files of a directory and no others.

    Raises:
        OSError: it cannot be written.
    """
    noted = dict(sorted(files.items()))
    replace_file(directory / RECORD_FILE, msgspec.json.encode(_Kept(noted, _sum(noted))))


def is_noted(directory: Path, name: str) -> bool:
    """Whether a file has been there."""
    return name in read_record(directory).files


def mark_of(data: bytes) -> str:
    """What tells a file from any other; it gives no secret away."""
    return hashlib.blake2b(data, digest_size=8, person=b"perdure.files").hexdigest()


def _sum(files: dict[str, str]) -> int:
    return zlib.crc32(msgspec.json.encode(sorted(files.items())))
