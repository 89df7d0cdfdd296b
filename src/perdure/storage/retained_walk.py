"""Retained topics as keys, and the walk over them that skips what cannot match a filter.

Keys are topics with 0x00 between levels, so a topic is followed by everything below it. A filter
gives the range to walk; inside it a key that does not match at some level tells the next key that
can, and the walk jumps there. ``a/+/c`` looks at one or two keys for each child of ``a``.

Pure functions of their arguments. Invariant: every stored topic that matches lies at or after
each jump's target.
"""

from __future__ import annotations

from typing import Final, final

from perdure.errors import StorageCorrupt, UsageError

ALL_END: Final = b"\xff"
"""No UTF-8 text begins with it."""


def retained_key(topic: str) -> bytes:
    """Key of a retained topic."""
    if "\0" in topic:
        # [MQTT-1.5.4-2] not in any topic, which leaves it free to stand between levels.
        raise UsageError("a topic has no U+0000")
    return topic.replace("/", "\0").encode()


def retained_topic(key: bytes) -> str:
    """The topic of a key of a retained topic."""
    try:
        return key.decode().replace("\0", "/")
    except UnicodeDecodeError as error:
        raise StorageCorrupt("a retained topic is not UTF-8") from error


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
        self.end = self.start + b"\x01" if fixed else ALL_END

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
            return above[:-1] + b"\x01" if above else ALL_END
        if len(topic) == len(levels) or self._any_below:
            return None
        return b"\0".join(topic[: len(levels)]) + b"\x01"
