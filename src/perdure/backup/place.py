"""Where backups are kept: what taking, keeping and restoring them needs of a place.

Names are paths with ``/``. Invariant of every place: a name that is listed has all its contents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

CHUNK_BYTES: Final = 1024 * 1024
"""What is read, counted and paced at once."""

Copied = Callable[[int], None]
"""Told of each piece that was copied, bytes; takes its time, where there is a rate."""


class Found(NamedTuple):
    """Something that is in a place.

    Attributes:
        size: bytes.
        age_s: since it was written.
    """

    size: int
    age_s: float


class Place(Protocol):
    """A directory, or what an object store has below a prefix. Methods raise ``StorageError``.

    Attributes:
        url: for people.
        grace_s: how old what no backup names must be before it may be deleted: where nobody can be
            locked out, another backup may just have written it.
    """

    url: str
    grace_s: float

    def make(self) -> None:
        """Make it one of ours, if nothing is there."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Keep others from changing it, where that can be done."""
        ...

    def free_bytes(self) -> int | None:
        """Room for more; None = nobody knows."""
        ...

    def find(self, prefix: str) -> dict[str, Found]:
        """Everything below a prefix, by name."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write something small, wholly or not at all, durably."""
        ...

    def put_file(self, source: Path, copied: Copied) -> tuple[str, int]:
        """Keep the contents of a file as an object, if they are not there; its SHA-256 and size."""
        ...

    def settle(self) -> None:
        """Everything that was put is durable when this returns."""
        ...

    def read(self, name: str) -> Generator[bytes, None, None]:
        """The contents of a name, in pieces.

        Raises:
            StorageCorrupt: it is not there.
        """
        ...

    def delete(self, names: list[str]) -> None:
        """Delete; a name that is not there is no error."""
        ...


@final
class RateLimiter:
    """Lets so many bytes pass in a second, and tells how many did.

    Args:
        rate: bytes per second; 0 = as many as come.
        progress: told of all bytes so far.
        clock, sleep: seconds; for tests.
    """

    def __init__(
        self,
        rate: int,
        progress: Callable[[int], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._progress = progress
        self._clock = clock
        self._sleep = sleep
        self._due_s = clock()
        self.bytes = 0

    def __call__(self, count: int) -> None:
        """So many bytes were copied."""
        self.bytes += count
        self._progress(self.bytes)
        if not self._rate:
            return
        now_s = self._clock()
        # What was not used before is not owed.
        self._due_s = max(self._due_s, now_s - 1.0) + count / self._rate
        if self._due_s > now_s:
            self._sleep(self._due_s - now_s)
