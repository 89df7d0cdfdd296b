"""Reads retained messages: a walk over topics in level order that skips what cannot match.

Keys are topics with 0x00 between levels, so a topic is followed by everything below it. A filter
gives the range to walk; inside it a key that does not match at some level tells the next key that
can, and the walk jumps there. ``a/+/c`` looks at one or two keys for each child of ``a``.

Invariant: every stored topic that matches lies at or after each jump's target.
"""

from __future__ import annotations

from typing import Final, final

from perdure.model import Message
from perdure.storage.contract import RetainedPage
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.codec import decode_retained
from perdure.storage.rocksdb.engine import RETAINED, Engine

_ALL_END: Final = b"\xff"
"""No UTF-8 text begins with it."""


@final
class Walk:
    """The levels of a filter, and where the next match can be."""

    __slots__ = ("_any_below", "_levels", "end", "start")

    def __init__(self, topic_filter: str) -> None:
        levels = topic_filter.encode().split(b"/")
        self._any_below = levels[-1] == b"#"
        if self._any_below:
            levels.pop()
        self._levels = levels
        fixed: list[bytes] = []
        for level in levels:
            if level == b"+":
                break
            fixed.append(level)
        self.start = b"\0".join(fixed)
        # What is below a topic begins with it and 0x00; 0x01 is the first after that.
        self.end = self.start + b"\x01" if fixed else _ALL_END

    def jump(self, key: bytes) -> bytes | None:
        """None if the key matches, else the first key after it that can."""
        levels = self._levels
        topic = key.split(b"\0")
        wildcard_first = not levels or levels[0] == b"+"
        if wildcard_first and topic[0][:1] == b"$":
            # [MQTT-4.7.2-1]; "%" follows "$".
            return b"%"
        for index, level in enumerate(levels):
            if index == len(topic):
                # Too short: what is below it may match.
                return key + b"\0"
            token = topic[index]
            if level == b"+" or token == level:
                continue
            above = b"".join([each + b"\0" for each in topic[:index]])
            if token < level:
                return above + level
            # Every level under `above` that could match has passed.
            return above[:-1] + b"\x01" if above else _ALL_END
        if len(topic) == len(levels) or self._any_below:
            return None
        return b"\0".join(topic[: len(levels)]) + b"\x01"


def read_page(
    engine: Engine, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
) -> RetainedPage:
    """See ``Database.read_retained``."""
    if "+" not in topic_filter and "#" not in topic_filter:
        return _read_one(engine, topic_filter, after_topic)
    walk = Walk(topic_filter)
    messages: list[Message] = []
    seeker = engine.seeker(RETAINED, walk.end)
    start = walk.start
    if after_topic:
        start = max(start, keys.retained(after_topic) + b"\0")
    key = seeker.seek(start)
    looked = 0
    while key is not None:
        looked += 1
        jump = walk.jump(key)
        if jump is None:
            messages.append(decode_retained(keys.retained_topic(key), seeker.value()))
        if len(messages) >= limit or looked >= scan_max:
            return RetainedPage(messages, keys.retained_topic(key))
        key = seeker.next() if jump is None else seeker.seek(jump)
    return RetainedPage(messages, None)


def _read_one(engine: Engine, topic: str, after_topic: str) -> RetainedPage:
    key = keys.retained(topic)
    if after_topic and key <= keys.retained(after_topic):
        return RetainedPage([], None)
    value = engine.get(RETAINED, key)
    return RetainedPage([] if value is None else [decode_retained(topic, value)], None)


def expired(
    engine: Engine, *, after_key: bytes, now_us: int, limit: int
) -> tuple[list[str], bytes]:
    """Expired topics among the next ``limit`` keys, and the key to go on after (empty = end)."""
    topics: list[str] = []
    rows = engine.items(RETAINED, after_key + b"\0", _ALL_END)
    for looked, (key, value) in enumerate(rows, 1):
        message = decode_retained(keys.retained_topic(key), value)
        if 0 < message.expires_at_us <= now_us:
            topics.append(message.topic)
        if looked >= limit:
            return topics, key
    return topics, b""
