"""The credentials file as it is on the disk, read once for each of its states.

Invariant: what is handed out is never changed: a change reads the file for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

from perdure.broker.auth.credentials import CredentialsFile
from perdure.server.administration.paging import in_order


@final
class CredentialView:
    """For threads; who comes while the file is being read waits for that.

    Args:
        in_force: the file as the broker has it, which is mostly the one on the disk: then it is not
            kept twice.
    """

    def __init__(self, in_force: Callable[[], CredentialsFile | None]) -> None:
        self._in_force = in_force
        self._lock = threading.Lock()
        self._file: CredentialsFile | None = None
        self._names: Sequence[str] = ()

    def look(self, path: str) -> tuple[CredentialsFile, Sequence[str]]:
        """The file, and its users in the order of their names.

        Raises:
            ConfigError: it cannot be read.
        """
        with self._lock:
            in_force = self._in_force()
            if in_force is not None and in_force is not self._file and _is(in_force, path):
                self._file, self._names = in_force, in_order(in_force.users)
            elif self._file is None or not _is(self._file, path):
                self._file = file = CredentialsFile.load(path, missing_ok=True)
                self._names = in_order(file.users)
            return self._file, self._names


def _is(file: CredentialsFile, path: str) -> bool:
    return str(file.path) == path and file.is_current()
