"""Opens the place that a path or URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.backup.directory import DirectoryPlace
from perdure.backup.place import Place
from perdure.errors import ConfigError

S3_SCHEME: Final = "s3://"


def open_place(url: str, *, setting: str = "--to", data: Path | None = None) -> Place:
    """The place that a path or URL names.

    Args:
        url: a directory, or ``s3://bucket/prefix``.
        setting: what the URL comes from, for errors.
        data: the directory that is to be backed up; a backup within it would go with it.

    Raises:
        ConfigError: it names none, or one in ``data``, or the extra is not installed.
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
    directory = Path(url.removeprefix("file://"))
    if data is not None and directory.resolve().is_relative_to(data.resolve()):
        raise ConfigError(
            f"{directory} is in the data directory: whoever loses that loses the backup",
            path=setting,
            hint="name a place on another disk, or s3://bucket/prefix",
        )
    return DirectoryPlace(directory)
