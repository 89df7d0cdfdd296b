"""Many filters at once: which of them are worth trying on a message.

Each filter is posted where its anchor is (``content.anchors``): in a tree of the fields of
payloads, or under a user property. One walk over what a message has and the index asks for finds
the filters that may hold; those without an anchor are always among them.

Sketch for 1,000 filters ``{"line": N, "t": {"$gt": 30}}``: one look into the payload, one into a
dictionary, one filter tried. Memory: a posting takes about 150 B.
"""

from __future__ import annotations

from typing import Any, Final, final

from perdure.content.anchors import Posting, postings_of
from perdure.content.document import MISSING, Content
from perdure.content.predicate import ContentFilter, element, is_number, number_of
from perdure.content.ranges import Ranges

INDEXED_FROM: Final = 8
"""Filters on one topic filter from which an index is worth its look-ups."""


@final
class Place:
    """A field, or a user property: who wants what of it, and the fields in it."""

    __slots__ = ("equal", "inner", "numbers", "texts")

    def __init__(self) -> None:
        self.equal: dict[Any, dict[str, None]] = {}
        """Texts of filters by value. To Python, 1 is True: that only finds too much."""
        self.numbers: Ranges | None = None
        self.texts: Ranges | None = None
        self.inner: dict[str, Place] = {}

    @property
    def is_empty(self) -> bool:
        """Nobody wants anything of it."""
        return not (self.equal or self.inner or self.numbers or self.texts)

    def put(self, posting: Posting, text: str) -> None:
        """Post a filter here."""
        if posting.is_range:
            ranges = self._ranges(posting) or Ranges()
            ranges.add(posting.low, posting.high, text)
            self._keep(posting, ranges)
            return
        same = self.equal.get(posting.value)
        if same is None:
            same = self.equal[posting.value] = {}
        same[text] = None

    def remove(self, posting: Posting, text: str) -> None:
        """Take a filter out."""
        if posting.is_range:
            ranges = self._ranges(posting)
            if ranges is not None:
                ranges.remove(posting.low, posting.high, text)
                self._keep(posting, ranges or None)
            return
        same = self.equal.get(posting.value)
        if same is not None:
            same.pop(text, None)
            if not same:
                del self.equal[posting.value]

    def find(self, value: object, found: dict[str, None]) -> None:
        """Add the filters that want a value, which is no object and no array."""
        same = self.equal.get(value)
        if same is not None:
            found.update(same)
        if isinstance(value, str):
            if self.texts is not None:
                self.texts.find(value, found)
        elif self.numbers is not None and is_number(value) and value == value:
            self.numbers.find(value, found)

    def _ranges(self, posting: Posting) -> Ranges | None:
        return self.texts if posting.is_text else self.numbers

    def _keep(self, posting: Posting, ranges: Ranges | None) -> None:
        if posting.is_text:
            self.texts = ranges
        else:
            self.numbers = ranges


@final
class ContentIndex:
    """Filters, each by its text."""

    __slots__ = ("_always", "_payload", "_properties")

    def __init__(self) -> None:
        self._always: dict[str, None] = {}
        """Without an anchor."""
        self._payload: Place = Place()
        self._properties: dict[str, Place] = {}

    @property
    def is_empty(self) -> bool:
        """There are no filters."""
        return not (self._always or self._properties) and self._payload.is_empty

    def put(self, condition: ContentFilter) -> None:
        """Add a filter; the same one twice is one."""
        postings = postings_of(condition.node)
        if postings is None:
            self._always[condition.text] = None
            return
        for posting in postings:
            self._place(posting).put(posting, condition.text)

    def remove(self, condition: ContentFilter) -> None:
        """Take a filter out that was put in."""
        self._always.pop(condition.text, None)
        for posting in postings_of(condition.node) or ():
            self._place(posting).remove(posting, condition.text)
            if posting.levels is None:
                if self._properties[posting.name].is_empty:
                    del self._properties[posting.name]
            else:
                _prune(self._payload, posting.levels)

    def candidates(self, content: Content) -> list[str]:
        """Texts of the filters to try: all that hold, few others, rarely one that was removed."""
        found: dict[str, None] = dict(self._always)
        if self._properties:
            for name, text in content.pairs():
                place = self._properties.get(name)
                if place is not None:
                    place.find(text, found)
                    number = number_of(text)
                    if number is not None:
                        place.find(number, found)
        if not self._payload.is_empty:
            root = content.root()
            if root is not MISSING:
                _walk(self._payload, root, found)
        return list(found)

    def _place(self, posting: Posting) -> Place:
        if posting.levels is None:
            place = self._properties.get(posting.name)
            if place is None:
                place = self._properties[posting.name] = Place()
            return place
        place = self._payload
        for level in posting.levels:
            inner = place.inner.get(level)
            if inner is None:
                inner = place.inner[level] = Place()
            place = inner
        return place


def _walk(place: Place, value: object, found: dict[str, None]) -> None:
    """Add what wants a value or what is in it. No deeper than payloads are."""
    if isinstance(value, dict):
        if len(value) < len(place.inner):
            for name, of_name in value.items():
                inner = place.inner.get(name)
                if inner is not None:
                    _walk(inner, of_name, found)
        else:
            for name, inner in place.inner.items():
                of_name = value.get(name, MISSING)
                if of_name is not MISSING:
                    _walk(inner, of_name, found)
    elif isinstance(value, list):
        for name, inner in place.inner.items():
            of_name = element(value, name)
            if of_name is not MISSING:
                _walk(inner, of_name, found)
    else:
        place.find(value, found)


def _prune(root: Place, levels: tuple[str, ...]) -> None:
    """Forget the places on a way that nobody wants anything of."""
    way = [root]
    for level in levels:
        inner = way[-1].inner.get(level)
        if inner is None:
            return
        way.append(inner)
    for depth in range(len(levels), 0, -1):
        if not way[depth].is_empty:
            return
        del way[depth - 1].inner[levels[depth - 1]]
