"""Files that others on the machine may read: a warning at the start, with what to do about it.

The data directory holds every message and the broker's key, the credentials file the hashes of
all passwords. The broker makes its directory with mode 0700 and its files with 0600, so this is
about directories and files that somebody else has made or changed. It is no reason not to start.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.config.listener_kinds import LISTENER_KINDS

if TYPE_CHECKING:
    from perdure.config.schema import Config

GROUP_OR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
OTHERS_OR_GROUP_WRITES: Final = stat.S_IRWXO | stat.S_IWGRP
"""A group may read a secret file: it may be how the broker gets to it (root:perdure, 0640)."""


def open_to_others(config: Config) -> Iterator[tuple[str, str, str]]:
    """What others may read or change and should not.

    Yields:
        The setting that names it, the path with its mode, and the remedy.
    """
    if config.storage.traits.is_kept:
        yield from _look("storage.path", config.storage.path, GROUP_OR_OTHERS, "chmod 700")
    auth = config.auth
    for name, path in (
        ("auth.password_file", auth.password_file),
        ("auth.ban_file", auth.ban_file),
        ("http.private_key", config.http.private_key),
        ("http.token_file", config.http.token_file),
        ("metrics.token_file", config.metrics.token_file),
    ):
        if path:
            yield from _look(name, path, OTHERS_OR_GROUP_WRITES, "chmod o-rwx,g-w")
    for kind in LISTENER_KINDS:
        for number, section in enumerate(getattr(config.listeners, kind)):
            if section.enabled and section.private_key:
                name = f"listeners.{kind}.{number}.private_key"
                yield from _look(
                    name, section.private_key, OTHERS_OR_GROUP_WRITES, "chmod o-rwx,g-w"
                )


def _look(name: str, path: str, mask: int, remedy: str) -> Iterator[tuple[str, str, str]]:
    try:
        found = Path(path).stat().st_mode
    except OSError:
        return  # whoever opens it says what is wrong
    mode = stat.S_IMODE(found)
    if mask == GROUP_OR_OTHERS and not stat.S_ISDIR(found):
        return  # the data directory is a file: that is another problem
    if mode & mask:
        yield name, f"{path} ({mode:04o})", f"{remedy} {path}"
