"""The matcher: from a topic to the values of all topic filters that match it.

The **shape** of a filter says what each level is: ``.`` a literal, ``+`` or ``#``; the shape of
``devices/+/temperature`` is ``.+.``. A topic and a shape give one candidate filter, so a topic is
matched by building the candidates for the shapes in use and looking each up in one hash map of
filters. That takes a third of a trie's memory and, with few shapes, less time.

Shapes in use are kept for each first level, wildcard first levels together, and by depth. No
topic has more than ``SHAPES_MAX`` candidates from one first level: a filter whose shape would be
one too many goes into a trie of that first level instead. Which of the two places a shape
belongs to does not change while it has filters, so nothing ever has to be moved.

Invariant: ``match(topic)`` holds the value of a filter once if ``matching.matches`` says that the
filter matches, else not. Takes valid names and filters without ``$share``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar, final

from perdure.topic.names import is_wildcard
from perdure.topic.recurring import Recurring
from perdure.topic.shape_set import ShapeSet
from perdure.topic.trie import FilterTrie

SHAPES_MAX: Final = 8
"""Most candidates of one topic from one first level; a trie gets faster at about a dozen."""

CACHE_MAX: Final = 65_536
"""Cached results, count."""

CACHE_TOPIC_LENGTH_MAX: Final = 512
"""Longer topics are not cached, so that the cache is bounded in bytes too, characters."""

V = TypeVar("V")


def shape_of(topic_filter: str) -> str:
    """The shape of a valid topic filter: one of ``.+#`` for each level."""
    return "".join([level if level in ("+", "#") else "." for level in topic_filter.split("/")])


def candidates(topic: str, shapes: Iterable[str]) -> list[str]:
    """The filters of given shapes that match a topic, one for each shape that can."""
    return CandidateBuilder(shapes).build(topic)


@final
class CandidateBuilder:
    """Builds candidates of many topics for one set of shapes."""

    __slots__ = ("_all", "_literal")

    def __init__(self, shapes: Iterable[str]) -> None:
        every = tuple(sorted(set(shapes)))
        self._all = ShapeSet(every)
        # [MQTT-4.7.2-1] a wildcard in the first level does not match `$`.
        self._literal = ShapeSet(tuple([shape for shape in every if shape[0] == "."]))

    def build(self, topic: str) -> list[str]:
        """The filters of the shapes that match a topic."""
        shapes = self._literal if topic.startswith("$") else self._all
        levels = topic.split("/")
        plan = shapes.plan(len(levels))
        levels.append("+")
        levels.append("#")
        return ["/".join(pick(levels)) for pick in plan]


@final
class FilterIndex(Generic[V]):
    """A map from topic filters to values that can be asked by topic.

    ``match`` returns the list that the cache holds: callers must not change it. A value may be
    mutable and change in place; replacing it is a ``put``. None is not a value.

    Args:
        cache_max: results to keep; 0 = none.
        shapes_max: candidates of one topic from one first level before the trie is used.
    """

    __slots__ = (
        "_cache_max",
        "_filters",
        "_groups",
        "_last",
        "_last_topic",
        "_lookups",
        "_misses",
        "_nothing",
        "_nowhere",
        "_old",
        "_old_firsts",
        "_recurring",
        "_room",
        "_shape_sets",
        "_shapes_max",
        "_young",
        "_young_firsts",
        "looked",
    )

    def __init__(self, *, cache_max: int = CACHE_MAX, shapes_max: int = SHAPES_MAX) -> None:
        self._filters: dict[str, V] = {}
        self._groups: dict[str, _Group[V]] = {}
        self._nowhere = ShapeSet(())
        # Groups with the same shapes share one.
        self._shape_sets: dict[tuple[str, ...], ShapeSet] = {(): self._nowhere}
        self._shapes_max = shapes_max
        # The cache has two halves: when the young one is full it becomes the old one, whose
        # entries come back when they are asked for. So a hit is one look-up, and forgetting
        # needs no order. The `firsts` list each half's topics by first level. A topic is kept
        # from its second miss on.
        self._cache_max = cache_max
        self._young: dict[str, list[V]] = {}
        self._old: dict[str, list[V]] = {}
        self._young_firsts: dict[str, list[str]] = {}
        self._old_firsts: dict[str, list[str]] = {}
        self._nothing: list[V] = []
        self._room = cache_max // 2
        self._recurring = Recurring()
        self._lookups = 0
        self._misses = 0
        self.looked: int = 0
        """Nodes of tries that matching has looked at, since whoever asks has set it to 0."""
        # What was answered last: messages of one topic mostly come several at a time.
        self._last_topic: str = ""
        self._last: list[V] = []

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, topic_filter: str) -> bool:
        return topic_filter in self._filters

    @property
    def lookup_count(self) -> int:
        """Calls of ``match``."""
        return self._lookups

    @property
    def miss_count(self) -> int:
        """Calls of ``match`` that the cache did not answer."""
        return self._misses

    def items(self) -> Iterator[tuple[str, V]]:
        """All filters and their values."""
        return iter(self._filters.items())

    def get(self, topic_filter: str) -> V | None:
        """The value of a filter (the filter itself, nothing is matched), or None."""
        return self._filters.get(topic_filter)

    def put(self, topic_filter: str, value: V) -> None:
        """Add a filter, or replace its value."""
        self._last_topic = ""
        is_new = topic_filter not in self._filters
        self._filters[topic_filter] = value
        if not is_wildcard(topic_filter):
            self._young.pop(topic_filter, None)
            self._old.pop(topic_filter, None)
            return
        levels = topic_filter.split("/")
        first = _group_name(levels)
        shape = shape_of(topic_filter)
        group = self._groups.get(first)
        if group is None:
            group = self._groups[first] = _Group(self._nowhere)
            self._nowhere.users += 1
        trie = group.trie
        if trie is not None and shape in trie.shapes:
            trie.put(levels, shape, value, is_new=is_new)
        elif is_new and not self._count_up(group, shape):
            if trie is None:
                trie = group.trie = FilterTrie()
            trie.put(levels, shape, value, is_new=True)
        self._forget(first)

    def remove(self, topic_filter: str) -> V | None:
        """Forget a filter; returns its value, or None if it is not there."""
        self._last_topic = ""
        value = self._filters.pop(topic_filter, None)
        if value is None:
            return None
        if not is_wildcard(topic_filter):
            self._young.pop(topic_filter, None)
            self._old.pop(topic_filter, None)
            return value
        levels = topic_filter.split("/")
        first = _group_name(levels)
        shape = shape_of(topic_filter)
        group = self._groups[first]
        if group.trie is not None and shape in group.trie.shapes:
            group.trie.remove(levels, shape)
            if not group.trie.shapes:
                group.trie = None
        else:
            self._count_down(group, shape)
        if group.trie is None and not group.counts:
            del self._groups[first]
            self._nowhere.users -= 1
        self._forget(first)
        return value

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match a topic, in no particular order."""
        self._lookups += 1
        if topic is self._last_topic:
            return self._last
        found = self._young.get(topic)
        if found is None:
            found = self._match_and_keep(topic)
        self._last_topic = topic
        self._last = found
        return found

    def match_uncached(self, topic: str) -> list[V]:
        """As ``match``, past the cache: for topics that will not come again."""
        levels = topic.split("/")
        first = levels[0]
        depth = len(levels)
        levels.append("+")
        levels.append("#")
        filters = self._filters
        found: list[V] = []
        value = filters.get(topic)
        if value is not None:
            found.append(value)
        group = self._groups.get(first)
        if group is not None:
            for pick in group.shape_set.plan(depth):
                value = filters.get("/".join(pick(levels)))
                if value is not None:
                    found.append(value)
            if group.trie is not None:
                self.looked += group.trie.collect(levels, depth, found)
        if topic.startswith("$"):
            # [MQTT-4.7.2-1]
            return found
        group = self._groups.get("+")
        if group is not None:
            for pick in group.shape_set.plan(depth):
                value = filters.get("/".join(pick(levels)))
                if value is not None:
                    found.append(value)
            if group.trie is not None:
                self.looked += group.trie.collect(levels, depth, found)
        return found

    def _match_and_keep(self, topic: str) -> list[V]:
        found = self._old.get(topic)
        if found is None:
            found = self.match_uncached(topic)
            self._misses += 1
            if self._cache_max < 2 or len(topic) > CACHE_TOPIC_LENGTH_MAX:
                return found
            if not self._recurring.is_recurring(topic):
                return found
            if not found:
                found = self._nothing
        if not self._room:
            self._old = self._young
            self._old_firsts = self._young_firsts
            self._young = {}
            self._young_firsts = {}
            self._room = self._cache_max // 2
        # Counted by what was put in, not by what is there: entries that are forgotten and come
        # again leave their topic in the lists.
        self._room -= 1
        self._young[topic] = found
        first = topic.partition("/")[0]
        topics = self._young_firsts.get(first)
        if topics is None:
            self._young_firsts[first] = [topic]
        else:
            topics.append(topic)
        return found

    def _forget(self, first: str) -> None:
        """Drop the cached results that a changed filter of a group may be in."""
        if first == "+":
            self._clear()
            return
        for cache, firsts in ((self._young, self._young_firsts), (self._old, self._old_firsts)):
            topics = firsts.pop(first, None)
            if topics is not None:
                for topic in topics:
                    cache.pop(topic, None)

    def _clear(self) -> None:
        if self._young or self._old:
            self._young = {}
            self._old = {}
            self._young_firsts = {}
            self._old_firsts = {}
            self._room = self._cache_max // 2

    def _count_up(self, group: _Group[V], shape: str) -> bool:
        """Count a filter of a shape; False if the shape would be one too many."""
        shape_set = group.shape_set
        index = shape_set.places.get(shape)
        if index is not None:
            group.counts[index] += 1
            return True
        found = self._shape_sets.get((*shape_set.shapes, shape))
        if found is None:
            if shape_set.most_beside(shape) >= self._shapes_max:
                return False
            found = shape_set.with_shape(shape)
        self._use(group, found)
        group.counts.append(1)
        return True

    def _count_down(self, group: _Group[V], shape: str) -> None:
        shape_set = group.shape_set
        index = shape_set.places[shape]
        group.counts[index] -= 1
        if not group.counts[index]:
            # The last one takes its place: the others stay where they are.
            last = group.counts.pop()
            if index < len(group.counts):
                group.counts[index] = last
            found = self._shape_sets.get(shape_set.shapes_without(index))
            self._use(group, shape_set.without(index) if found is None else found)

    def _use(self, group: _Group[V], shape_set: ShapeSet) -> None:
        before = group.shape_set
        if not shape_set.users:
            self._shape_sets[shape_set.shapes] = shape_set  # one text of its shapes, not two
        shape_set.users += 1
        group.shape_set = shape_set
        before.users -= 1
        if not before.users and before.shapes:
            del self._shape_sets[before.shapes]


@final
class _Group(Generic[V]):
    """The wildcard filters of one first level."""

    __slots__ = ("counts", "shape_set", "trie")

    def __init__(self, shape_set: ShapeSet) -> None:
        self.shape_set = shape_set
        self.counts: list[int] = []
        self.trie: FilterTrie[V] | None = None


def _group_name(levels: list[str]) -> str:
    """The first level, or ``+`` for either wildcard: no topic's first level is that."""
    first = levels[0]
    return "+" if first == "#" else first
