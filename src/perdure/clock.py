"""Time as an argument: the ``Clock`` and the one that reads the system.

Pure floors take ``now_us`` as an argument; shells hold a ``Clock``. Only ``server`` makes one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

_time_ns: Final = time.time_ns
_monotonic_ns: Final = time.monotonic_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock(ABC):
    """A source of time. A base class and no protocol: it is read for all that comes, and the
    compiled form calls a method of a class by its place."""

    __slots__ = ()

    @abstractmethod
    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""

    @abstractmethod
    def monotonic_us(self) -> int:
        """Monotonic time in microseconds; never stored, only subtracted."""


@final
class SystemClock(Clock):
    """The clock of the machine."""

    __slots__ = ()

    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""
        return _time_ns() // 1000

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds."""
        return _monotonic_ns() // 1000
