"""What a layout of the log is: how one generation's messages become keys, and keys messages.

A layout never changes in place. A new one has a new number, and mostly a module of its own; the
header of each generation says which it is, so that what was written stays readable.

Invariant of every layout: ``scan`` gives each recorded message that matches once, in offset
order, whatever was learned before or after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from perdure.model import Message
from perdure.storage.contract import Counted, Finding
from perdure.storage.rocksdb.effort import Effort
from perdure.storage.rocksdb.engine import Operations
from perdure.storage.rows import Rows

TOPIC_LENGTH_MAX: Final = 512
"""The keys of longer topics are made anew: one client's topics must not fill the memory."""


class Layout(Protocol):
    """The messages of one generation."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that hold the generation."""
        ...

    @property
    def stream_count(self) -> int:
        """Number of streams."""
        ...

    def append(self, operations: Operations, messages: list[Message]) -> Rows:
        """Add what records messages (offsets are set, and ascend) to a list of operations; returns
        them as the rows of the tail."""
        ...

    def append_rows(self, operations: Operations, rows: Rows) -> Rows:
        """``append`` for messages that are rows already."""
        ...

    def unpersisted(self) -> Operations:
        """What must be written before or with the messages that ``append`` gave."""
        ...

    def mark_persisted(self) -> None:
        """What ``unpersisted`` gave last was written."""
        ...

    def ended(self) -> None:
        """It is not the current generation any more: what is remembered for writing may go."""
        ...

    def scan(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        effort: Effort | None = None,
    ) -> Iterator[Message]:
        """The messages that match any filter, by offset; to be used up before the next await.

        Args:
            filters: topic filters; a ``FilterSet`` where they are read for again and again.
            after_offset, until_offset: exclusive and inclusive bounds.
            effort: bounds what is looked at in vain, and says where that ended it, where the
                layout can; None = nothing does.
        """
        ...

    def count(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        effort: Effort | None = None,
    ) -> Counted:
        """How many messages ``scan`` would give, at most ``limit``, and up to which offset."""
        ...

    def streams(self) -> list[tuple[int, str]]:
        """Streams and their patterns; empty for a layout that has none."""
        ...

    def check(self, *, since_offset: int, until_offset: int) -> Iterator[Finding | int]:
        """Look at every row: yields what is wrong, and last the number of messages.

        Args:
            since_offset, until_offset: the generation has no offset outside ``[since, until)``.
        """
        ...


def table_names(generation: int) -> tuple[str, str]:
    """Names of the data and index tables of a generation."""
    return f"g{generation:08}.data", f"g{generation:08}.index"


def table_generation(name: str) -> int:
    """The generation that a table belongs to; 0 = none."""
    head, _, tail = name.partition(".")
    if tail in ("data", "index") and head[:1] == "g" and head[1:].isdecimal():
        return int(head[1:])
    return 0
