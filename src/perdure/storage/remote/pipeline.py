"""Transactions on their way to the server, one after the other.

::

    write -> open transaction --(sync, read, 10 ms)--> closed -> commit -> acknowledged
                  ^ gathers what is written while one is under way: the group commit

What is closed is kept until the server has acknowledged it. After a lost connection the driver's
claim tells whether it was applied; if not, it is sent again. When that has gone on for
``outage_max_s``, or more bytes wait than may, the pipeline has *failed*: who waits is told, and
nothing is taken until ``recover`` has delivered what is kept.

Invariant: transactions are applied in the order of their numbers, each once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias, final

from perdure.errors import StorageCorrupt, StorageError, StorageTimeout, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.storage.remote.driver import Driver, Transaction

log = get_logger("storage")

FLUSH_DELAY_S: Final = 0.01
"""What nobody waits for is sent at the latest after this time."""

WATCH_S: Final = 1.0
"""How often a pipeline without work looks after its connection."""

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0

Done: TypeAlias = Callable[[StorageError | None], None]


@final
class Pipeline:
    """Delivers transactions. All methods are called on the driver's loop.

    Args:
        driver: the server.
        close: takes the open transaction and closes it; None = nothing is in it.
        outage_max_s: how long a transaction is sent again before the store has failed.

    Attributes:
        number: of the last closed transaction.
        failure: set while the store has failed.
        held: the transaction that is closed and not acknowledged.
    """

    def __init__(
        self, driver: Driver, close: Callable[[], Transaction | None], *, outage_max_s: float
    ) -> None:
        self._driver = driver
        self._close = close
        self._outage_max_s = outage_max_s
        self.number = 0
        self.failure: StorageError | None = None
        self.held: Transaction | None = None
        self._last_write = 0
        self._wanted = 0
        self._acknowledged = 0
        self._waiters: deque[tuple[int, Done]] = deque()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._recovering = False

    def start(self, number: int) -> None:
        """Begin to deliver; the server has transactions up to ``number``."""
        self.number = number
        self._task = asyncio.get_running_loop().create_task(self._run(), name="store")

    async def stop(self) -> None:
        """Deliver nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._fail_waiters(StorageUnavailable("the store is closed"))

    def written(self, write: int) -> None:
        """A batch was written that nobody waits for yet."""
        self._last_write = max(self._last_write, write)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_DELAY_S, self._flush)

    def want(self, write: int, done: Done) -> None:
        """Call ``done`` when the batch with this number, and all before it, is acknowledged."""
        if self.failure is not None:
            done(self.failure)
            return
        if write <= self._acknowledged:
            done(None)
            return
        self._waiters.append((write, done))
        if write > self._wanted:
            self._wanted = write
        self._wake.set()

    async def settle(self, write: int) -> None:
        """Wait until the batch with this number, and all before it, is acknowledged.

        Raises:
            StorageError: the store has failed.
        """
        if write <= self._acknowledged and self.failure is None:
            return
        future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

        def done(error: StorageError | None) -> None:
            if not future.done():
                future.set_result(error)

        self.want(write, done)
        error = await future
        if error is not None:
            raise copy_of(error)

    def fail(self, error: StorageError) -> None:
        """Take nothing more until ``recover``."""
        if self.failure is None:
            self.failure = error
            self._fail_waiters(error)

    async def recover(self) -> bool:
        """One attempt to deliver what is kept; True if nothing is left.

        Raises:
            StorageError: it can never be delivered.
        """
        if self.failure is None:
            return True
        if self._recovering:
            return False
        self._recovering = True
        try:
            delivered = await self._claim_and_skip()
            if self.held is not None and not delivered:
                await self._driver.commit(self.held)
            self._delivered()
            while (following := self._next()) is not None:
                await self._driver.commit(following)
                self._delivered()
        except (StorageCorrupt, StorageUnavailable, StorageTimeout) as error:
            self.failure = error
            if isinstance(error, StorageCorrupt):
                raise
            return False
        except StorageError as error:
            self.failure = error
            if error.retriable:
                return False
            raise
        finally:
            self._recovering = False
        self.failure = None
        self._wake.set()
        return True

    # -- delivering ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(WATCH_S):
                    await self._wake.wait()
            except TimeoutError:
                await self._watch()
                continue
            self._wake.clear()
            while self.failure is None and self._wanted > self._acknowledged:
                transaction = self._next()
                if transaction is None:
                    self._acknowledge(self._wanted)
                    break
                try:
                    error = await self._deliver(transaction)
                except Exception as unforeseen:
                    # Whoever waits must not wait for ever; what a driver lets through is a bug.
                    log.exception("storage.driver_failed", server=self._driver.place)
                    error = StorageError(f"{self._driver.place}: {unforeseen!r}")
                if error is not None:
                    self.fail(error)
                    break
                self._delivered()

    async def _watch(self) -> None:
        """A broker with nothing to write keeps its claim too: make a lost connection again."""
        if self.failure is not None or self._driver.is_connected:
            return
        try:
            await self._claim_and_skip()
        except (StorageUnavailable, StorageTimeout):
            return  # whoever writes will be told, and we look again
        except StorageError as error:
            self.fail(error)
        else:
            log.info("storage.reconnected", server=self._driver.place)

    def _flush(self) -> None:
        self._timer = None
        self._wanted = max(self._wanted, self._last_write)
        self._wake.set()

    def _next(self) -> Transaction | None:
        if self.held is None:
            transaction = self._close()
            if transaction is not None:
                self.number += 1
                transaction.number = self.number
                self.held = transaction
        return self.held

    def _delivered(self) -> None:
        transaction, self.held = self.held, None
        if transaction is not None:
            self._acknowledge(transaction.last_write)

    def _acknowledge(self, write: int) -> None:
        self._acknowledged = max(self._acknowledged, write)
        waiters = self._waiters
        ready: list[Done] = []
        for _ in range(len(waiters)):
            number, done = waiters.popleft()
            if number <= self._acknowledged:
                ready.append(done)
            else:
                waiters.append((number, done))
        for done in ready:
            done(None)

    def _fail_waiters(self, error: StorageError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for _, done in waiters:
            done(error)

    async def _deliver(self, transaction: Transaction) -> StorageError | None:
        """Send a transaction until it is acknowledged; the error if that cannot be."""
        loop = asyncio.get_running_loop()
        try:
            await self._driver.commit(transaction)
        except (StorageUnavailable, StorageTimeout) as error:
            failure: StorageError = error
        except StorageError as error:
            return error
        else:
            return None
        begun = loop.time()
        log.warning("storage.disconnected", server=self._driver.place, error=failure.message)
        delay = BACKOFF_MIN_S
        while loop.time() - begun < self._outage_max_s:
            await asyncio.sleep(delay)
            delay = min(delay * 2, BACKOFF_MAX_S)
            try:
                left = max(0.1, self._outage_max_s - (loop.time() - begun))
                async with asyncio.timeout(left):
                    if not await self._claim_and_skip():
                        await self._driver.commit(transaction)
            except (StorageUnavailable, StorageTimeout) as error:
                failure = error
            except TimeoutError:
                break
            except StorageError as error:
                return error
            else:
                log.info("storage.reconnected", server=self._driver.place)
                return None
        return failure

    async def _claim_and_skip(self) -> bool:
        """Connect again; whether the held transaction had been applied."""
        claim = await self._driver.claim()
        held = self.held
        if held is not None and claim.number == held.number:
            return True
        acknowledged = self.number - (1 if held is not None else 0)
        if claim.number != acknowledged:
            raise StorageCorrupt(
                f"{self._driver.place} came back at transaction {claim.number}, "
                f"but {acknowledged} had been acknowledged",
                hint="the server has lost what it had acknowledged: restart the broker to go on "
                "with what it has, and see to its durability",
            )
        return False


def copy_of(error: StorageError) -> StorageError:
    """An error for one more caller: an exception that is raised twice grows its traceback."""
    return type(error)(error.message, hint=error.hint)
