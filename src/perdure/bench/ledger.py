"""Who got what: lost, repeated and out of order, counted for each stream of a subscriber.

Pure: counters in, verdicts out. A message is *repeated* if the same one came before; *out of
order* if a later one of its stream came before it; *lost* if it was sent and never came.
"""

from __future__ import annotations

from typing import final


@final
class Ledger:
    """What one subscriber has received, or all members of a shared group together.

    Args:
        is_group: members read side by side, so what comes after a later message says nothing.

    Attributes:
        nexts: by stream, the counter that should come next; most messages only touch this.
        repeated: messages that came again.
        out_of_order: messages that came after a later one.
    """

    __slots__ = ("_is_group", "_missing", "nexts", "out_of_order", "repeated")

    def __init__(self, *, is_group: bool = False) -> None:
        self._is_group = is_group
        self.nexts: dict[int, int] = {}
        self.repeated: int = 0
        self.out_of_order: int = 0
        self._missing: dict[int, set[int]] = {}

    def irregular(self, stream: int, counter: int) -> bool:
        """Note a message whose counter is not the next one; returns whether it is new."""
        expected = self.nexts.get(stream, 0)
        if counter >= expected:
            if counter > expected:
                self._missing.setdefault(stream, set()).update(range(expected, counter))
            self.nexts[stream] = counter + 1
            return True
        missing = self._missing.get(stream)
        if missing and counter in missing:
            missing.discard(counter)
            self.out_of_order += not self._is_group
            return True
        self.repeated += 1
        return False

    def note(self, stream: int, counter: int) -> bool:
        """Note a message; returns whether it is new."""
        if self.nexts.get(stream, 0) == counter:
            self.nexts[stream] = counter + 1
            return True
        return self.irregular(stream, counter)

    def distinct(self, stream: int) -> int:
        """How many different messages of a stream came."""
        return self.nexts.get(stream, 0) - len(self._missing.get(stream, ()))

    def missing(self, stream: int, sent: int) -> int:
        """How many of the first ``sent`` messages of a stream have not come."""
        return max(0, sent - self.distinct(stream))
