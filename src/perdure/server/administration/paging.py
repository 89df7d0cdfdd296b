"""Pages of lists that are in memory whole, in the order of their keys or of a column."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from perdure.admin.problems import Refused
from perdure.admin.wire import decode_given
from perdure.server.administration.listing import decode_cursor, encode_cursor

T = TypeVar("T")

SORTED_MAX: Final = 10_000
"""Items that are put in order for a page, some milliseconds of the loop."""


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


def in_order(names: Sequence[str]) -> list[str]:
    """Names in order, for threads: ``sorted`` of a million would stop all others for a second."""
    runs = [sorted(names[first : first + SORTED_MAX]) for first in range(0, len(names), SORTED_MAX)]
    return runs[0] if len(runs) == 1 else list(heapq.merge(*runs))


class Sorted(Paged, Protocol):
    """A request for a page in an order of its own."""

    @property
    def sort(self) -> str:
        """A column, ``-`` before it for the greatest first; empty = by key."""
        ...


def sorted_page(
    items: Sequence[T],
    request: Sorted,
    key: Callable[[T], str],
    columns: Mapping[str, Callable[[T], Any]],
) -> tuple[list[T], str | None]:
    """As ``page_of``, in the order that is asked for. What has no value in a column comes first.

    Args:
        items: all, by ascending key.
        request: which page, in which order.
        key: what tells items apart.
        columns: of the orders beside the key's.

    Raises:
        Refused: the cursor is none of this order, or there are too many items for one.
    """
    if not request.sort:
        return page_of(items, request, key)
    if len(items) > SORTED_MAX:
        raise Refused(
            "bad_request",
            f"{len(items)} items are not sorted for a page: {SORTED_MAX} at most are",
            hint="leave sort out",
        )
    column = columns[request.sort.removeprefix("-")]

    def place(item: T) -> list[Any]:
        value = column(item)
        return [False, 0, key(item)] if value is None else [True, value, key(item)]

    placed = sorted(((place(item), item) for item in items), key=lambda pair: pair[0])
    if request.sort.startswith("-"):
        placed.reverse()
    first = 0
    if request.cursor:
        after = _place_of(request)
        try:
            first = sum(
                each <= after if not request.sort.startswith("-") else each >= after
                for each, _ in placed
            )
        except TypeError:
            raise Refused("bad_request", "the cursor is not one of this order") from None
    page = placed[first : first + request.limit]
    more = first + request.limit < len(placed)
    following = None
    if more and page:
        following = encode_cursor(msgspec.json.encode([request.sort, *page[-1][0]]).decode())
    return [item for _, item in page], following


def _place_of(request: Sorted) -> list[Any]:
    """Where the page before has ended."""
    try:
        found = decode_given(decode_cursor(request.cursor), list[Any])
    except ValueError:
        found = []
    if len(found) != 4 or found[0] != request.sort:
        raise Refused("bad_request", "the cursor is not one of this order")
    return found[1:]
