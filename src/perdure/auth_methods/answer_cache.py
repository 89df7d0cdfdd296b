"""What a server said, remembered for a while, so that not every CONNECT asks it.

A question is kept as its digest under a key of this process alone: whoever reads the memory finds
no password, and nobody who chooses questions chooses where they are kept.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar, final

from perdure.clock import Clock

CACHE_KEY_BYTES: Final = 32

AnswerT = TypeVar("AnswerT")


@final
class AnswerCache(Generic[AnswerT]):
    """Answers by question, each until its time is over; the oldest go first.

    Args:
        clock: monotonic time.
        key: of the digests, ``CACHE_KEY_BYTES`` of chance.
        size_max: most answers.
    """

    def __init__(self, clock: Clock, key: bytes, *, size_max: int) -> None:
        self._clock = clock
        self._key = key
        self._size_max = size_max
        self._entries: OrderedDict[bytes, tuple[int, AnswerT]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, question: bytes) -> AnswerT | None:
        """The answer, if it is known and still holds."""
        if not self._entries:
            return None
        digest = self._digest(question)
        found = self._entries.get(digest)
        if found is None:
            return None
        until_us, answer = found
        if until_us <= self._clock.monotonic_us():
            del self._entries[digest]
            return None
        return answer

    def put(self, question: bytes, answer: AnswerT, *, holds_s: int) -> None:
        """Remember an answer in place of an earlier one; not at all if it holds for no time."""
        digest = self._digest(question)
        self._entries.pop(digest, None)
        if holds_s <= 0 or self._size_max <= 0:
            return
        while len(self._entries) >= self._size_max:
            self._entries.popitem(last=False)
        self._entries[digest] = self._clock.monotonic_us() + holds_s * 1_000_000, answer

    def drop(self, condition: Callable[[AnswerT], bool]) -> None:
        """Forget the answers that meet a condition."""
        for digest in [key for key, found in self._entries.items() if condition(found[1])]:
            del self._entries[digest]

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def _digest(self, question: bytes) -> bytes:
        return hmac.digest(self._key, question, "sha256")
