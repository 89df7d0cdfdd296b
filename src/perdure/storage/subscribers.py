"""The index of subscriptions by topic filter: its keys, and the walk from a topic to what matches.

A key is the filter's levels with 0x00 between them, then 0xFF, the client id, 0xFF and the
subscription's name (nothing where the filter is the name). 0x00 is in no text of MQTT and 0xFF in
no UTF-8, so each part ends where it seems to. The filters of one level lie together, and a walk
goes into those levels only that a filter has: its work grows with what matches, not with what is
stored.

Pure functions of their arguments.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from perdure.errors import StorageCorrupt

LEVEL: Final = b"\0"
END: Final = b"\xff"


class Subscriber(NamedTuple):
    """A subscription, by whose it is and what it is called."""

    client_id: str
    name: str


class SubscriberPage(NamedTuple):
    """Some of the subscriptions that a topic matches.

    Attributes:
        found: in the order of their keys.
        next_start: where the next page begins; None = there is none.
    """

    found: list[Subscriber]
    next_start: bytes | None


def subscriber_key(topic_filter: str, client_id: str, name: str) -> bytes:
    """Key of a subscription."""
    own = "" if name == topic_filter else name
    levels = topic_filter.encode().replace(b"/", LEVEL)
    return b"%b\xff%b\xff%b" % (levels, client_id.encode(), own.encode())


def parse_subscriber(key: bytes) -> tuple[str, Subscriber]:
    """Topic filter and subscription of a key.

    Raises:
        StorageCorrupt: it is no key.
    """
    try:
        levels, client_id, own = [part.decode() for part in key.split(END)]
    except ValueError as error:
        raise StorageCorrupt("a subscriber's key does not decode") from error
    topic_filter = levels.replace("\0", "/")
    return topic_filter, Subscriber(client_id, own or topic_filter)


class Step(NamedTuple):
    """A place to look at.

    Attributes:
        prefix: of the keys that are wanted there.
        depth: levels of the topic that it has; -1 = it is a whole filter, which matches.
    """

    prefix: bytes
    depth: int


@final
class TopicWalk:
    """The filters that may match a topic, level by level, in the order of their keys.

    Args:
        topic: topic name.
    """

    __slots__ = ("_levels", "_steps")

    def __init__(self, topic: str) -> None:
        self._levels: list[bytes] = topic.encode().split(b"/")
        self._steps: list[Step] = [Step(b"", 0)]

    def next(self) -> Step | None:
        """The next place; None = there is none."""
        return self._steps.pop() if self._steps else None

    def enter(self, step: Step) -> None:
        """Go into a level: a filter has it."""
        prefix, depth = step
        levels = self._levels
        # [MQTT-4.7.2-1] a wildcard in the first level does not match what begins with "$".
        may_vary = depth > 0 or levels[0][:1] != b"$"
        found: list[Step] = []
        if may_vary:
            # "a/#" matches "a", too (section 4.7.1.2).
            found.append(Step(prefix + b"#" + END, -1))
        if depth < len(levels):
            is_last = depth + 1 == len(levels)
            for level in (levels[depth], b"+") if may_vary else (levels[depth],):
                found.append(Step(prefix + level + LEVEL, depth + 1))
                if is_last:
                    found.append(Step(prefix + level + END, -1))
        found.sort(reverse=True)
        self._steps += found
