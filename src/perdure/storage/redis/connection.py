"""One connection to one Redis: bytes out once per turn of the loop, replies in, in order.

Replies come in the order of the commands, so a queue of batches is all the bookkeeping there is,
and there is one future for a whole batch. Knows the protocol; does not know what the commands
mean, nor other nodes. Invariant: once anything went wrong on the wire, the connection is closed
and every unanswered batch fails: their outcome is unknown, and a reply can no longer be matched.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, Final, cast, final

from hiredis import ProtocolError, Reader, ReplyError

from perdure.errors import StorageError, StorageTimeout, StorageUnavailable
from perdure.storage.redis.commands import Reply

_NOT_YET: Final = object()
_CHECKS_PER_TIMEOUT: Final = 4


@final
class _Batch:
    __slots__ = ("count", "deadline", "future", "replies", "size")

    def __init__(
        self, count: int, size: int, deadline: float, future: asyncio.Future[list[Reply]]
    ) -> None:
        self.count = count
        self.size = size
        self.deadline = deadline
        self.future = future
        self.replies: list[Reply] = []


@final
class Connection(asyncio.Protocol):
    """A connection that has been made; ``open_connection`` makes it.

    Attributes:
        is_open: whether batches can be sent.
        lost: done once it is closed, from whichever side.
        reason: why it is closed; empty while it is open.

    Args:
        name: of the peer, for messages.
        timeout_s: how long a batch may stay unanswered.
        bytes_max: unanswered bytes at which ``has_room`` says no.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, name: str, timeout_s: float, bytes_max: int
    ) -> None:
        self.name = name
        self.lost: asyncio.Future[None] = loop.create_future()
        self.is_open = False
        self.reason = ""
        self._loop = loop
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max
        self._reader = Reader(notEnoughData=_NOT_YET)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Batch] = deque()
        self._out: list[bytes] = []
        self._flush_due = False
        self._unanswered_bytes = 0
        self._paused = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._watch: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sent; one may always be sent, however large."""
        return not self._paused and self._unanswered_bytes < self._bytes_max

    def send(self, packed: bytes, count: int) -> asyncio.Future[list[Reply]]:
        """Send commands in wire form; the future has their replies, error replies among them.

        The caller has waited for ``room``. What is sent within one turn of the loop goes out in
        one write.
        """
        future: asyncio.Future[list[Reply]] = self._loop.create_future()
        if not self.is_open:
            future.set_exception(StorageUnavailable(f"{self.name}: the connection is closed"))
            return future
        deadline = self._loop.time() + self._timeout_s
        self._pending.append(_Batch(count, len(packed), deadline, future))
        self._unanswered_bytes += len(packed)
        self._out.append(packed)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        return future

    async def room(self) -> None:
        """Wait until there is room for another batch, or the connection is lost."""
        while self.is_open and not self.has_room:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Close at once; whatever is unanswered fails."""
        self._fail(StorageUnavailable(f"{self.name}: the connection was closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        # uvloop's is none by its class.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True
        self._watch = self._loop.call_later(self._timeout_s / _CHECKS_PER_TIMEOUT, self._check)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        gets = reader.gets
        try:
            while (reply := gets()) is not _NOT_YET:
                batch = pending[0]
                replies = batch.replies
                replies.append(reply)
                if len(replies) == batch.count:
                    pending.popleft()
                    self._unanswered_bytes -= batch.size
                    # The caller may have been cancelled.
                    if not batch.future.done():
                        batch.future.set_result(replies)
        except (ProtocolError, IndexError) as error:
            self._fail(StorageUnavailable(f"{self.name} does not speak as Redis does: {error}"))
            return
        if self._waiters and self.has_room:
            self._wake()

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._paused = True

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._paused = False
        if self.has_room:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        reason = f": {exc}" if exc else ""
        self._fail(StorageUnavailable(f"{self.name}: the connection was lost{reason}"))

    def _flush(self) -> None:
        self._flush_due = False
        if self._out and self._transport is not None and self.is_open:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _check(self) -> None:
        if self._pending and self._pending[0].deadline <= self._loop.time():
            self._fail(StorageTimeout(f"{self.name} did not answer within {self._timeout_s:g} s"))
            return
        self._watch = self._loop.call_later(self._timeout_s / _CHECKS_PER_TIMEOUT, self._check)

    def _wake(self) -> None:
        # All of them: each looks again whether there still is room.
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: StorageError) -> None:
        if self.lost.done():
            return
        self.reason = error.message
        self.is_open = False
        self.lost.set_result(None)
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._out.clear()
        pending, self._pending = self._pending, deque()
        for batch in pending:
            if not batch.future.done():
                batch.future.set_exception(error)
        self._unanswered_bytes = 0
        self._wake()


async def open_connection(
    host: str,
    port: int,
    *,
    name: str,
    context: ssl.SSLContext | None,
    connect_timeout_s: float,
    timeout_s: float,
    bytes_max: int,
) -> Connection:
    """Connect, without logging in.

    Raises:
        StorageUnavailable: nobody takes the connection, or TLS fails.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(connect_timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(loop, name=name, timeout_s=timeout_s, bytes_max=bytes_max),
                host,
                port,
                ssl=context,
            )
    except TimeoutError as error:
        raise StorageUnavailable(f"{name}: no connection in {connect_timeout_s:g} s") from error
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StorageUnavailable(f"{name}: no connection: {reason}") from error
    return connection


def is_error(reply: Any) -> bool:
    """Whether a reply is an error."""
    return type(reply) is ReplyError
