"""Which topics a topic filter matches, one filter at a time (MQTT 5.0 section 4.7).

The reference for every faster way of matching in this project: ``shapes``, ``structure`` and the
store's readers are tested against ``matches``. Takes valid names and filters without ``$share``.

Two rules are easy to get wrong. A wildcard in the first level does not match a topic that begins
with ``$`` [MQTT-4.7.2-1]. ``#`` matches the level above it too: ``a/#`` matches ``a``
(section 4.7.1.2).
"""

from __future__ import annotations

import re
from typing import final


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter matches a topic name."""
    if topic.startswith("$") and topic_filter.startswith(("+", "#")):
        return False
    filter_levels = topic_filter.split("/")
    topic_levels = topic.split("/")
    for index, level in enumerate(filter_levels):
        if level == "#":
            return True
        if index == len(topic_levels):
            return False
        if level != "+" and level != topic_levels[index]:
            return False
    return len(filter_levels) == len(topic_levels)


@final
class FilterMatcher:
    """One topic filter, made ready to be tried on many topics.

    Attributes:
        filter: the topic filter.
    """

    __slots__ = ("_parent", "_pattern", "_prefix", "filter")

    def __init__(self, topic_filter: str) -> None:
        self.filter = topic_filter
        self._parent = ""
        self._prefix = ""
        self._pattern: re.Pattern[str] | None = None
        if topic_filter.endswith("/#") and "+" not in topic_filter:
            self._parent = topic_filter[:-2]
            self._prefix = topic_filter[:-1]
        elif "+" in topic_filter or topic_filter == "#":
            self._pattern = re.compile(_regular_expression(topic_filter), re.DOTALL)

    def matches(self, topic: str) -> bool:
        """Whether the filter matches a topic name."""
        if self._pattern is not None:
            return self._pattern.fullmatch(topic) is not None
        if self._prefix:
            return topic.startswith(self._prefix) or topic == self._parent
        return topic == self.filter


def compile_filter(topic_filter: str) -> FilterMatcher:
    """Make a topic filter ready to be tried on many topics."""
    return FilterMatcher(topic_filter)


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that ``narrow`` matches is matched by ``wide``."""
    if narrow.startswith("$") and wide.startswith(("+", "#")):
        return False
    wide_levels = wide.split("/")
    narrow_levels = narrow.split("/")
    for index, level in enumerate(wide_levels):
        if level == "#":
            return True
        if index == len(narrow_levels):
            return False
        other = narrow_levels[index]
        if other == "#" or (level not in ("+", other)):
            return False
    return len(wide_levels) == len(narrow_levels)


def intersects(filter_a: str, filter_b: str) -> bool:
    """Whether some topic is matched by both filters."""
    if filter_a.startswith("$") and filter_b.startswith(("+", "#")):
        return False
    if filter_b.startswith("$") and filter_a.startswith(("+", "#")):
        return False
    levels_a = filter_a.split("/")
    levels_b = filter_b.split("/")
    for level_a, level_b in zip(levels_a, levels_b, strict=False):
        if level_a == "#" or level_b == "#":
            return True
        if level_a != level_b and level_a != "+" and level_b != "+":
            return False
    if len(levels_a) == len(levels_b):
        return True
    shorter = min(len(levels_a), len(levels_b))
    longer = levels_a if len(levels_a) > shorter else levels_b
    return longer[shorter] == "#"


def _regular_expression(topic_filter: str) -> str:
    """The filter as a regular expression for a whole topic.

    No part of it can match in two ways, so the time to match is linear in the topic.
    """
    levels = topic_filter.split("/")
    tail = ""
    if levels[-1] == "#":
        levels.pop()
        tail = "(?:/.*)?" if levels else ".*"
    body = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels)
    guard = "" if levels and levels[0] != "+" else r"(?!\$)"
    return guard + body + tail
