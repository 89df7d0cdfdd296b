"""Who works on an archive: ``lease.json`` at its place.

The holder renews it; when it has not for its time, another one takes it with the next *epoch*.
Before each commit the holder looks whether the lease is still its own, and is fenced off if it is
not. In a directory taking it is atomic (a lock on a file). An object store knows no lock: there who
takes it writes, waits and reads it back, and the last writer has it. What is left of a race ends at
the commit, which a table refuses whose position has moved: two never write the same messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.errors import Fenced
from perdure.files import locked
from perdure.pipeline.lake.stores import Store, below, scheme_of

NAME: Final = "lease.json"
SETTLE_S: Final = 2.0
"""How long a store is given to show what another one has written."""


class Held(msgspec.Struct, frozen=True):
    """The file.

    Attributes:
        holder: host, process and a random part.
        epoch: grows with every holder.
        until_us: wall time; after it anybody may take it. 0 = it was given back.
    """

    holder: str
    epoch: int
    until_us: int


@final
class Lease:
    """One holder's side.

    Args:
        place: of the archive.
        store: how it is reached.
        holder: this one.
        time_s: how long it lasts without a renewal.
        now_us: wall clock.
        wait: between write and look in a store.

    Attributes:
        holder: this one.
    """

    def __init__(
        self,
        place: str,
        store: Store,
        *,
        holder: str,
        time_s: float,
        now_us: Callable[[], int],
        wait: Callable[[float], object],
    ) -> None:
        self._place, self._store = place, store
        self.holder, self._time_us = holder, round(time_s * 1e6)
        self._now_us, self._wait = now_us, wait
        self.epoch = 0
        """Of this holder; 0 = it has not got it."""

    def read(self) -> Held | None:
        """Who holds it; None = nobody ever did."""
        try:
            data = self._store.read(below(self._place, NAME))
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=Held)
        except ValueError:
            return None

    def take(self) -> Held | None:
        """Take it.

        Returns:
            Who has it, if that is somebody else; None = it is ours.
        """
        with self._locked():
            found = self.read()
            is_other = found is not None and found.holder != self.holder
            if found is not None and is_other and found.until_us > self._now_us():
                self.epoch = 0
                return found
            epoch = (found.epoch if found else 0) + 1
            self._write(epoch, self._now_us() + self._time_us)
        if scheme_of(self._place):
            self._wait(SETTLE_S)
            found = self.read()
            if found is None or (found.holder, found.epoch) != (self.holder, epoch):
                return found or Held("?", epoch, 0)
        self.epoch = epoch
        return None

    def renew(self) -> None:
        """Keep it for longer.

        Raises:
            Fenced: it is somebody else's.
        """
        with self._locked():
            self.check()
            self._write(self.epoch, self._now_us() + self._time_us)

    def check(self) -> None:
        """Make sure that it is ours.

        Raises:
            Fenced: it is not.
        """
        found = self.read()
        if (
            not self.epoch
            or found is None
            or (found.holder, found.epoch)
            != (
                self.holder,
                self.epoch,
            )
        ):
            self.epoch = 0
            raise Fenced(
                f"{self._place} is worked on by {found.holder if found else 'nobody'} now",
                hint="its lease ran out here: pipeline.lease_s",
            )

    def give_back(self) -> None:
        """Let the next one have it at once."""
        with contextlib.suppress(Fenced), self._locked():
            self.check()
            self._write(self.epoch, 0)
            self.epoch = 0

    def _write(self, epoch: int, until_us: int) -> None:
        held = Held(self.holder, epoch, until_us)
        self._store.write(below(self._place, NAME), msgspec.json.encode(held))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if scheme_of(self._place):
            yield
            return
        path = Path(self._place) / f".{NAME}.lock"
        with locked(path):
            yield
