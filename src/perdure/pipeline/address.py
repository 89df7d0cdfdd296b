"""Where a log is that is read over HTTP: a broker, or several nodes with the same log."""

from __future__ import annotations

from typing import Final

import msgspec

WAIT_S: Final = 60
"""How long a broker that is away is waited for, unless something else is said."""


class Remote(msgspec.Struct, frozen=True):
    """A broker's HTTP interface.

    Attributes:
        url: without a slash at its end.
        token: empty = none.
        ca_file: authority of its certificate; empty = the system's.
        wait_s: how long it is waited for while it is away.
        compression: of rows: ``lz4``, ``zstd`` or empty.
        others: further addresses of the same log, to be asked if this one does not answer.
    """

    url: str
    token: str = ""
    ca_file: str = ""
    wait_s: float = WAIT_S
    compression: str = ""
    others: tuple[str, ...] = ()

    @property
    def each(self) -> tuple[Remote, ...]:
        """One for each address, in the order in which they are asked."""
        urls = (self.url, *self.others)
        return tuple(msgspec.structs.replace(self, url=url, others=()) for url in urls)

    def turned(self) -> Remote:
        """Ask the second address first, and the first one last."""
        return self.beginning_at((*self.others, self.url)[0])

    def beginning_at(self, url: str) -> Remote:
        """Ask one of the addresses first; those before it come last, in their order."""
        urls = (self.url, *self.others)
        at = urls.index(url)
        return msgspec.structs.replace(self, url=url, others=(*urls[at + 1 :], *urls[:at]))

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"
