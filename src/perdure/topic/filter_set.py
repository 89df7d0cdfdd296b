"""Topic filters that the log is read for, page after page.

What a read finds out about its filters alone is found out once for all pages: a session may have
ten thousand. (Not compiled: a native class can't be a ``Sequence``.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final, overload

from perdure.topic.any_filter import AnyFilter
from perdure.topic.names import is_wildcard
from perdure.topic.shapes import FilterIndex


@final
class FilterSet(Sequence[str]):
    """Topic filters. It is one by what it is, not by what it holds, so a store may keep what it
    knows of it for as long as it lives.

    Args:
        filters: without ``$share``.
        index: see ``AnyFilter``.

    Attributes:
        filters: each once.
        is_exact: none of them has a wildcard.
    """

    __slots__ = ("__weakref__", "_any", "_index", "filters", "is_exact")

    def __init__(self, filters: Iterable[str], index: FilterIndex[Any] | None = None) -> None:
        self.filters: tuple[str, ...] = tuple(dict.fromkeys(filters))
        self.is_exact: bool = not any(map(is_wildcard, self.filters))
        self._index = index
        self._any: AnyFilter | None = None

    @classmethod
    def of(cls, filters: Sequence[str]) -> FilterSet:
        """The same filters, themselves if they are one already."""
        return filters if isinstance(filters, FilterSet) else cls(filters)

    @property
    def any(self) -> AnyFilter:
        """Tries a topic on them."""
        if self._any is None:
            self._any = AnyFilter(self.filters, self._index)
        return self._any

    def __len__(self) -> int:
        return len(self.filters)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self.filters[at]
