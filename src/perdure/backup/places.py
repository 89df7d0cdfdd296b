"""Opens the place that a path or URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.backup.directory import DirectoryPlace
from perdure.backup.place import Place
from perdure.errors import ConfigError

S3_SCHEME: Final = "s3://"


def open_place(url: str, *, setting: str = "--to") -> Place:
    """The place that a path or URL names.

    Args:
        url: a directory, or ``s3://bucket/prefix``.
        setting: what the URL comes from, for errors.

    Raises:
        ConfigError: it names none, or the extra is not installed.
    """
    if url.startswith(S3_SCHEME):
        # boto3 takes a second to load.
        from perdure.backup.s3 import open_s3

        return open_s3(url, setting=setting)
    if "://" in url and not url.startswith("file://"):
        raise ConfigError(
            f"{url} is no place for backups",
            path=setting,
            hint="a directory, or s3://bucket/prefix",
        )
    if not url:
        raise ConfigError("no place for backups is named", path=setting)
    return DirectoryPlace(Path(url.removeprefix("file://")))
