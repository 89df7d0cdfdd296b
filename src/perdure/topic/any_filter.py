"""Topic filters that a topic is tried on together, however many they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, final

from perdure.topic.matching import FilterMatcher, compile_filter
from perdure.topic.shapes import FilterIndex

FEW: Final = 8
"""Filters up to which trying each beats making an index."""

_KEPT_LENGTH_MAX: Final = 512
"""Matchers of longer filters are not kept."""


@final
class AnyFilter:
    """Whether a topic is wanted by one filter or another.

    Args:
        filters: topic filters.
        index: has them, and perhaps others that may say yes as well; None = one is made if they
            are more than a few.
    """

    __slots__ = ("_index", "_matchers")

    def __init__(self, filters: Sequence[str], index: FilterIndex[Any] | None = None) -> None:
        self._index: FilterIndex[Any] | None = index
        self._matchers: list[FilterMatcher] = []
        if index is not None:
            return
        if len(filters) <= FEW:
            self._matchers = [_matcher(topic_filter) for topic_filter in filters]
            return
        made: FilterIndex[Any] = FilterIndex()
        for topic_filter in filters:
            made.put(topic_filter, topic_filter)
        self._index = made

    def matches(self, topic: str) -> bool:
        """Whether one of the filters matches a topic name."""
        if self._index is not None:
            return len(self._index.match(topic)) > 0
        return any(matcher.matches(topic) for matcher in self._matchers)


def _matcher(topic_filter: str) -> FilterMatcher:
    if len(topic_filter) > _KEPT_LENGTH_MAX:
        return compile_filter(topic_filter)
    return _kept_matcher(topic_filter)


@lru_cache(maxsize=4096)
def _kept_matcher(topic_filter: str) -> FilterMatcher:
    return compile_filter(topic_filter)
