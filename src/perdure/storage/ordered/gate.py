"""What a replica is given of its loop, whatever loop that is."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias


class Gate(Protocol):
    """What a coroutine waits at."""

    def open(self) -> None:
        """Let it go on; opening twice is harmless."""
        ...

    def __await__(self) -> Generator[Any, Any, None]: ...


Later: TypeAlias = Callable[[Callable[[], None]], object]
"""Calls something at the next turn of the loop."""
