"""Who waits for a page of the archive: clients take turns, each with its oldest request.

Pure: what a request is does not matter here. Invariant: between two requests of one client each
other client that waits has one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class PastLine(Generic[T]):
    """A line of requests."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, client_id: str, request: T) -> None:
        """Wait, behind what the client waits for already."""
        self._clients.setdefault(client_id, deque()).append(request)
        self._count += 1

    def take(self) -> tuple[str, T] | None:
        """The next request; the client that it is of is the last now."""
        if not self._clients:
            return None
        client_id, waiting = self._clients.popitem(last=False)
        request = waiting.popleft()
        self._count -= 1
        if waiting:
            self._clients[client_id] = waiting
        return client_id, request

    def waiting(self) -> Iterator[T]:
        """The oldest request of each client."""
        return (requests[0] for requests in self._clients.values())

    def drop(self, is_over: Callable[[T], bool]) -> list[T]:
        """Take out those whose time is over."""
        dropped: list[T] = []
        for client_id, waiting in list(self._clients.items()):
            over = [each for each in waiting if is_over(each)]
            if not over:
                continue
            dropped += over
            kept = deque(each for each in waiting if not is_over(each))
            if kept:
                self._clients[client_id] = kept
            else:
                del self._clients[client_id]
        self._count -= len(dropped)
        return dropped

    def clear(self) -> list[T]:
        """Take out all."""
        return self.drop(lambda _: True)
