"""Pages of lists that are in memory whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from perdure.server.administration.listing import decode_cursor, encode_cursor

T = TypeVar("T")


class Paged(Protocol):
    """A request for a page."""

    @property
    def limit(self) -> int:
        """Items."""
        ...

    @property
    def cursor(self) -> str:
        """Of the page before."""
        ...


def page_of(
    items: Sequence[T], request: Paged, key: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """The items of a page, and the cursor of the next one.

    Args:
        items: all, by ascending key.
        request: which page.
        key: what tells items apart, and orders them.

    Raises:
        Refused: the cursor is none.
    """
    after = decode_cursor(request.cursor)
    first = bisect_right(items, after, key=key) if after else 0
    page = list(items[first : first + request.limit])
    more = first + request.limit < len(items)
    return page, encode_cursor(key(page[-1])) if more and page else None
