"""One object for each topic that comes again in bytes.

A topic that is decoded anew for each message costs its decoding, its hash, and a piece of memory
for as long as the message is kept, which is cold by the time that the next one is written there.
"""

from __future__ import annotations

from typing import Final, final

from perdure.topic.recurring import Recurring

TOPICS_MAX: Final = 65_536
"""Topics that are kept, count; then all are forgotten."""

TOPIC_BYTES_MAX: Final = 256
"""A longer one is not kept, bytes."""


@final
class KnownTopics:
    """The topics that came more than once."""

    __slots__ = ("_known", "_recurring")

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._recurring: Recurring = Recurring()

    @property
    def count(self) -> int:
        """Topics that are kept."""
        return len(self._known)

    def topic(self, name: bytes) -> str:
        """The topic with a name.

        Args:
            name: UTF-8.

        Raises:
            UnicodeDecodeError: it is not.
        """
        topic = self._known.get(name)
        if topic is None:
            topic = name.decode()
            if len(name) <= TOPIC_BYTES_MAX and self._recurring.is_recurring(topic):
                if len(self._known) >= TOPICS_MAX:
                    self._known.clear()
                self._known[name] = topic
        return topic
