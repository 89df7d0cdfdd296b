"""Requests that come while one batch is on its way go together in the next one.

That is what makes many callers share a round trip and a transaction (and so one flush of the
server's log). Requests that concern the same client keep their order: one waits while another is
on its way. The room knows nothing of what a request asks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Generic, Protocol, TypeVar, final

from perdure.errors import PerdureError, StorageConflict, StorageError, StorageUnavailable

CONFLICT_RETRIES: Final = 5
"""How often a batch is sent again that another writer was in the way of; nothing of it was done."""


class Request(Protocol):
    """What a gatherer must know of a request."""

    @property
    def clients(self) -> Collection[str]:
        """Whose it is."""
        ...

    @property
    def group(self) -> int:
        """Only requests of one group go together."""
        ...

    @property
    def weight(self) -> int:
        """Its share of a batch."""
        ...


_R = TypeVar("_R", bound=Request)
_T = TypeVar("_T")


@final
class _Waiting(Generic[_R, _T]):
    __slots__ = ("future", "request")

    def __init__(self, request: _R, future: asyncio.Future[_T]) -> None:
        self.request = request
        self.future = future


@final
class Gatherer(Generic[_R, _T]):
    """Gathers requests of one kind.

    Args:
        run: does a batch; returns one result, or the error of one, for each request.
        workers: batches on their way at a time.
        weight_max: of one batch; 0 = each request goes alone.
    """

    def __init__(
        self,
        run: Callable[[Sequence[_R]], Awaitable[Sequence[_T | PerdureError]]],
        *,
        workers: int,
        weight_max: int,
    ) -> None:
        self._run = run
        self._workers = workers
        self._weight_max = weight_max
        self._waiting: deque[_Waiting[_R, _T]] = deque()
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def submit(self, request: _R) -> _T:
        """Do one request, with others; returns its result.

        Raises:
            PerdureError: its own error, or that of the whole batch.
        """
        if self._is_closed:
            raise StorageUnavailable("the queue is closed")
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request, future))
        if len(self._tasks) < self._workers:
            # A task begins at the next turn of the loop: what comes in this one goes with it.
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def close(self) -> None:
        """Take no more requests, and wait for those that are under way."""
        self._is_closed = True
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _work(self) -> None:
        while batch := self._next_batch():
            clients = {client for waiting in batch for client in waiting.request.clients}
            self._busy |= clients
            try:
                await self._run_batch(batch)
            except BaseException as error:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(_for_waiter(error))
                raise
            finally:
                self._busy -= clients

    def _next_batch(self) -> list[_Waiting[_R, _T]]:
        batch: list[_Waiting[_R, _T]] = []
        left: list[_Waiting[_R, _T]] = []
        # Whose earlier request stays must wait too.
        taken_or_busy = set(self._busy)
        weight = 0
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.future.done():
                continue
            request = waiting.request
            fits = not batch or (
                weight + request.weight <= self._weight_max
                and request.group == batch[0].request.group
            )
            if fits and taken_or_busy.isdisjoint(request.clients):
                batch.append(waiting)
                weight += request.weight
            else:
                left.append(waiting)
            taken_or_busy.update(request.clients)
            if batch and weight >= self._weight_max:
                break
        self._waiting.extendleft(reversed(left))
        return batch

    async def _run_batch(self, batch: Sequence[_Waiting[_R, _T]]) -> None:
        requests = [waiting.request for waiting in batch]
        try:
            results = await self._run_retrying(requests)
        except StorageError as error:
            for waiting in batch:
                _settle(waiting.future, error)
            return
        except PerdureError as error:
            # One wrong request must not cost the others: each by itself.
            if len(batch) == 1:
                _settle(batch[0].future, error)
                return
            for waiting in batch:
                await self._run_batch((waiting,))
            return
        for waiting, result in zip(batch, results, strict=True):
            _settle(waiting.future, result)

    async def _run_retrying(self, requests: Sequence[_R]) -> Sequence[_T | PerdureError]:
        for _ in range(CONFLICT_RETRIES):
            try:
                return await self._run(requests)
            except StorageConflict:
                continue
        return await self._run(requests)


def _settle(future: asyncio.Future[_T], result: _T | PerdureError) -> None:
    if future.done():
        return
    if isinstance(result, PerdureError):
        # Each waiter gets an exception of its own: tracebacks grow where they are raised.
        future.set_exception(_copy(result))
    else:
        future.set_result(result)


def _copy(error: PerdureError) -> PerdureError:
    copy = type(error)(error.message, hint=error.hint)
    copy.__cause__ = error.__cause__
    return copy


def _for_waiter(error: BaseException) -> BaseException:
    if isinstance(error, asyncio.CancelledError):
        return StorageUnavailable("the queue was closed")
    return error
